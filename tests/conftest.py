"""Settings that every test relies on, made before MLX is imported anywhere."""

import os
from collections.abc import Iterator

os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ.setdefault("DSPARK_BLAS", "stock")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from engine import backend  # noqa: F401  (must come before mlx)


@pytest.fixture(autouse=True, scope="session")
def _patient() -> Iterator[None]:
    """Whether a plain round waits for lookup depends on what waiting costs, which is measured. Tests must not depend on
    this machine's clock: here it always waits, but for the tests of not waiting (decoding/test_overlap.py)."""
    from fakes import FixedIdle

    import engine.decoding.loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.decoding.loop, "Idle", lambda: FixedIdle(0.0))
        yield

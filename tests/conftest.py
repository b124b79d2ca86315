"""Settings that every test relies on, made before MLX is imported anywhere. No outcome may depend on chance, on the
clock or on how busy the machine is."""

import os
import random
from collections.abc import Iterator
from types import SimpleNamespace

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # `make test` runs two processes: with more threads they fight for the cores
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ.setdefault("DSPARK_BLAS", "stock")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from engine import backend  # noqa: F401  (must come before mlx)
from tests import cases

cases.register()

import mlx.core as mx
import numpy as np


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws without a key or a generator of its own draws the same in every run and in any order of tests; so
    does a request without a seed."""
    from engine.sampling import sampler

    monkeypatch.setattr(sampler, "secrets", SimpleNamespace(randbits=random.Random(0).getrandbits))
    random.seed(0)
    np.random.seed(0)
    mx.random.seed(0)


@pytest.fixture(autouse=True, scope="session")
def _patient() -> Iterator[None]:
    """Whether a plain round waits for lookup depends on what waiting costs, which is measured. Tests must not depend on
    this machine's clock: here it always waits, but for the tests of not waiting (decoding/test_overlap.py)."""
    from fakes import FixedIdle

    import engine.decoding.loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.decoding.loop, "Idle", lambda: FixedIdle(0.0))
        yield

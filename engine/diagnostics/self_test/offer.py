"""Whether the self-test was offered on this kind of backend: once, and never again.

Imports no MLX, for a start must not wait for it.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from engine import paths

CUDA = ("mlx-cuda-13", "mlx-cuda-12", "mlx-cuda")
"""Distributions that carry MLX for NVIDIA's cards."""
NAMES = {"cpu": "this CPU", "metal": "Metal", "cuda": "CUDA"}


def installed_kind() -> str:
    """ "metal", "cuda" or "cpu", by what is installed."""
    if sys.platform == "darwin":
        return "metal"
    for name in CUDA:
        with suppress(PackageNotFoundError):
            version(name)
            return "cuda"
    return "cpu"


def offer() -> str:
    """One sentence at the first start on this kind of backend, and from then on none."""
    kind = installed_kind()
    known = _known()
    if kind in known or not _keep([*known, kind]):
        return ""
    return (
        f"This is the first start on {NAMES[kind]}: dspark-chat doctor --self-test checks in about a minute, without a "
        "download, that it computes what it should."
    )


def taken() -> None:
    """The self-test ran: it need not be offered."""
    known, kind = _known(), installed_kind()
    if kind not in known:
        _keep([*known, kind])


def _file() -> Path:
    return paths.state() / "self-test.json"


def _known() -> list[str]:
    """Kinds of backend that it was offered on."""
    try:
        told: Any = json.loads(_file().read_text(encoding="utf-8"))["offered"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [str(kind) for kind in cast("list[Any]", told)] if isinstance(told, list) else []


def _keep(kinds: list[str]) -> bool:
    """Whether it could be written: what cannot be remembered must not be offered at every start."""
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        paths.write_atomically(file, json.dumps({"offered": kinds}) + "\n")
    except OSError:
        return False
    return True

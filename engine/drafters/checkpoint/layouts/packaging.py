"""What a layout of drafter files is: how it is told from others, and how it reads. Knows no layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import Json


def _same(name: str) -> str:
    return name


def _none(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Packaging:
    """One layout: `PACKAGING` in its own file, and a row of `registry.LAYOUTS`. `read` refuses with a reason;
    `rename` and `dropped` apply to tensor names."""

    name: str
    matches: Callable[[Json], bool]
    read: Callable[[Json], DrafterConfig]
    rename: Callable[[str], str] = _same
    dropped: Callable[[str], bool] = _none

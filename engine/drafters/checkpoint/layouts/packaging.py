"""What a layout of drafter files is: how it is told from others, and how it reads. Knows no layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import Json
from engine.errors import DrafterRefused


def _same(name: str) -> str:
    return name


def _none(name: str) -> bool:
    return False


def described(read: Callable[[], DrafterConfig]) -> DrafterConfig:
    """What a layout reads, or a refusal where a value is of another type than everywhere else.

    Raises:
        DrafterRefused: with the reason.
    """
    try:
        return read()
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        raise DrafterRefused(
            f"The drafter's config cannot be read ({' '.join(str(error).split())[:200]}); fetch a complete copy of it."
        ) from error


@dataclass(frozen=True, slots=True)
class Packaging:
    """One layout: `PACKAGING` in its own file, and a row of `registry.LAYOUTS`. `reader` refuses with a reason;
    `rename` and `dropped` apply to tensor names."""

    name: str
    matches: Callable[[Json], bool]
    reader: Callable[[Json], DrafterConfig]
    rename: Callable[[str], str] = _same
    dropped: Callable[[str], bool] = _none

    def read(self, config: Json) -> DrafterConfig:
        return described(lambda: self.reader(config))

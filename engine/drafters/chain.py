"""An ordered line of drafters: the first that proposes is verified. Every way of decoding is one.

No parts is plain decoding, one part is that drafter alone, (lookup, dspark) tries a copy before the learned drafter.
Each part keeps its own context, and every part observes every committed row, whoever proposed: contexts have no holes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.drafters.base import Drafter


@dataclass(frozen=True, slots=True)
class Chain:
    """What a sequence drafts with."""

    name: str
    parts: tuple[Drafter[Any], ...] = ()
    taps: tuple[int, ...] = field(init=False)
    """Layers that any part wants tapped, ascending."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "taps", tuple(sorted({t for part in self.parts for t in part.taps})))

    @property
    def learned(self) -> Drafter[Any] | None:
        """The part that reads taps, if any."""
        return next((part for part in self.parts if part.taps), None)


NONE = Chain("none")
"""Plain decoding."""

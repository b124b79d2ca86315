"""A limit on reasoning: after so many tokens the model is made to close it, and goes on to its answer.

A processor that only forces tokens; what the reasoning says is left alone. Knows ids, no template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sequence is."""

    inside: bool
    fresh: bool = True
    """No token yet: the model may still open its reasoning."""
    count: int = 0
    tail: tuple[int, ...] = ()
    forced: int = 0
    """How many ids of the forced end were said."""


class ReasoningLimit:
    """The limit of one sequence; a `Processor`."""

    needs_draft = True

    def __init__(
        self, limit: int, *, closer: tuple[int, ...], ending: tuple[int, ...], inside: bool, opener: int | None = None
    ) -> None:
        """closer: ids that end reasoning. ending: ids to force, closer included. inside: the prompt opened it."""
        self._limit = max(1, limit)
        self._closer = closer
        self._ending = ending
        self._opener = opener
        self._place = _Place(inside)

    def trim(self, drafts: Sequence[int]) -> int:
        place = self._place
        for i, token in enumerate(drafts):
            if self._wanted(place) not in (None, token):
                return i
            place = self._after(place, token)
        return len(drafts)

    def rows(self, logits: mx.array, drafts: mx.array) -> mx.array:
        place = self._place
        wanted = [self._wanted(place)]
        ids: list[int] = drafts.tolist()  # pyright: ignore[reportAssignmentType]  # one axis
        for token in ids:
            place = self._after(place, token)
            wanted.append(self._wanted(place))
        if not any(w is not None for w in wanted):
            return logits
        column = np.array([-1 if w is None else w for w in wanted], dtype=np.int32)[:, None]
        ask = mx.array(column.tolist(), dtype=mx.int32)
        allowed = (ask < 0) | (mx.arange(logits.shape[-1])[None] == ask)
        return mx.where(allowed, logits, -mx.inf)

    def commit(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._place = self._after(self._place, token)

    def _wanted(self, place: _Place) -> int | None:
        """The only id that may come next; None: any."""
        if place.inside and place.count >= self._limit and place.forced < len(self._ending):
            return self._ending[place.forced]
        return None

    def _after(self, place: _Place, token: int) -> _Place:
        if not place.inside:
            return replace(place, inside=place.fresh and token == self._opener, fresh=False)
        forced = place.forced + 1 if place.count >= self._limit else 0
        tail = (*place.tail, token)[-len(self._closer) :]
        over = forced >= len(self._ending) if forced else tail == self._closer
        return _Place(not over, False, place.count + 1, tail, forced)

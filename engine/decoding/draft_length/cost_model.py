"""What a round costs and what it yields: the pure model behind every choice of draft length.

A width is the number of rows of a verify forward, a cap the number of drafts (width = cap + 1); times are milliseconds.
Knows no model, no clock and no file.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

TYPICAL = 0.70
"""Acceptance a position assumed for a pair that nobody has watched yet: the one value that puts the derived cap of at
least seven of the eight published M4 Pro pairs on their measured best (0.65 gets five)."""

DEPTH_MATTERS = 0.15
"""A derived cap is reconsidered at depth once the slope term reaches this share of the verify cost."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Piecewise-linear values over ascending integer points; beyond the last point its last slope continues."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, values: Mapping[int, float]) -> Curve:
        """From a mapping; at least one point.

        Raises:
            ValueError: no points, or a value that is negative or not a number.
        """
        points = tuple(sorted((int(x), float(y)) for x, y in values.items()))
        if not points or any(not math.isfinite(y) or y < 0 for _, y in points):
            raise ValueError("a cost curve needs at least one point, and only finite values of 0 or more")
        return cls(points)

    def __call__(self, x: int) -> float:
        points = self.points
        if x <= points[0][0] or len(points) == 1:
            return points[0][1]
        at = min(bisect_left(points, (x, -math.inf)), len(points) - 1)
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return max(0.0, y0 + (y1 - y0) * (x - x0) / (x1 - x0))

    @property
    def last(self) -> int:
        return self.points[-1][0]

    def as_dict(self, digits: int = 4) -> dict[str, float]:
        """For a file."""
        return {str(x): round(y, digits) for x, y in self.points}


_ZERO = Curve(((1, 0.0),))


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost curves of one target and one drafter on one machine."""

    verify: Curve
    """Forward of one sequence by width, at `base_depth`."""
    drafter: Curve = _ZERO
    """One proposal by cap; a single point where the drafter always drafts its full block."""
    overhead: float = 0.0
    """A drafting round's time besides verify and draft."""
    slope: Curve = _ZERO
    """Verify milliseconds a token of context beyond `base_depth`, by width."""
    base_depth: int = 0
    batch: Mapping[int, Curve] = field(default_factory=dict[int, Curve])
    """Verify curves of batches, by number of sequences."""
    drafter_batch: Mapping[int, Curve] = field(default_factory=dict[int, Curve])
    """Proposals for several sequences in one forward, by their number; where unknown, each pays its own."""

    def verify_ms(self, width: int, depth: int = 0, rows: int = 1) -> float:
        curve = self.verify
        if rows > 1 and self.batch:
            curve = _at_least(self.batch, rows)
        return curve(width) + self.slope(width) * max(0, depth - self.base_depth) * rows

    def draft_ms(self, cap: int, rows: int = 1) -> float:
        """Proposals of `cap` drafts for each of `rows` sequences."""
        if rows > 1 and self.drafter_batch:
            return _at_least(self.drafter_batch, rows)(cap)
        return self.drafter(cap) * rows

    def round_ms(self, cap: int, depth: int = 0, rows: int = 1) -> float:
        """A whole round at a draft length; 0 is a plain step."""
        if cap <= 0:
            return self.verify_ms(1, depth, rows)
        return self.verify_ms(cap + 1, depth, rows) + self.draft_ms(cap, rows) + self.overhead

    def without_draft(self) -> Costs:
        """The same machine for proposals that cost nothing to make (lookup)."""
        return Costs(self.verify, _ZERO, 0.0, self.slope, self.base_depth, self.batch)

    def flat(self, cap: int) -> bool:
        """Whether all widths up to cap + 1 cost within 5 % of each other: shortening a draft then saves nothing."""
        costs = [self.verify(w) for w in range(2, cap + 2)]
        return not costs or max(costs) <= 1.05 * min(costs)


def _at_least(curves: Mapping[int, Curve], rows: int) -> Curve:
    """Of the smallest batch measured that holds so many, else of the largest."""
    measured = sorted(curves)
    return curves[next((b for b in measured if b >= rows), measured[-1])]


def committed(chances: Iterable[float]) -> float:
    """Expected tokens of a round whose draft i is accepted, given all before it, with chance i: 1 + sum of products."""
    total, alive = 1.0, 1.0
    for chance in chances:
        alive *= chance
        total += alive
    return total


Chances = Callable[[int], Sequence[float]]
"""cap -> conditional acceptance of each of that many drafts."""


def constant(p: float) -> Chances:
    """The same acceptance at every position."""
    return lambda cap: (p,) * cap


def rate(costs: Costs, chances: Chances, cap: int, depth: int = 0, rows: int = 1) -> float:
    """Predicted tokens a second of each sequence."""
    return 1000.0 * committed(chances(cap)) / max(1e-6, costs.round_ms(cap, depth, rows))


def best_cap(costs: Costs, chances: Chances, longest: int, depth: int = 0, rows: int = 1, *, shortest: int = 1) -> int:
    """The draft length in [shortest, longest] with the highest predicted rate; the shorter one of equals."""
    if longest < shortest:
        return max(0, longest)
    return max(range(shortest, longest + 1), key=lambda cap: (rate(costs, chances, cap, depth, rows), -cap))


def derived_cap(costs: Costs, longest: int, depth: int = 0, rows: int = 1, chances: Chances | None = None) -> int:
    """The cap of a pair from its curves: best at typical acceptance, only ever shortened by depth.

    With acceptance known for the pair (`chances`) the answer may be 0: a drafter that does not pay here.
    """
    shortest = 0 if chances else 1
    chances = chances or constant(TYPICAL)
    cap = best_cap(costs, chances, longest, 0, rows, shortest=shortest)
    extra = costs.slope(cap + 1) * max(0, depth - costs.base_depth)
    if extra < DEPTH_MATTERS * costs.verify(cap + 1):
        return cap
    return min(cap, best_cap(costs, chances, longest, depth, rows, shortest=shortest))


def knee(curve: Curve, longest: int | None = None) -> int | None:
    """The width whose step up is out of line with the cheaper ones: more than 1.8 times their mean and more than 15 %
    of one row. For people; no choice depends on it.

    The first step has nothing before it and is judged by the mean of the rest, so that a cliff right at width 2 shows;
    each later one by the mean of all before it, so that a flat step does not turn the next ordinary one into a knee.
    """
    widths = [w for w in range(1, (longest or curve.last) + 1) if w >= curve.points[0][0]]
    steps = [(b, max(0.0, curve(b) - curve(a))) for a, b in pairwise(widths)]
    floor = 0.15 * curve(widths[0])
    for at, (width, step) in enumerate(steps):
        others = [s for _, s in (steps[1:] if at == 0 else steps[:at])]
        if step > floor and others and step > 1.8 * sum(others) / len(others):
            return width
    return None


def distinct_experts(active: int, total: int, width: int) -> float:
    """Experts that `width` rows with independent routing read in one layer: why MoE verify curves are steep."""
    return total * (1.0 - (1.0 - active / total) ** width)

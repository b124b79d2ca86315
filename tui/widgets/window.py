"""Which part of a long list is worth having on the screen. Pure: heights in, ranges out.

Everything outside the range is two blank spacers as tall as what they stand for, so that the scrollbar and the position
mean the same whatever is mounted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

MARGIN = 2
"""Screens kept on either side of the view."""
NEAR = 1
"""Fewer screens than this between the view and the edge of what is mounted: time to move the window."""


def edges(heights: Sequence[int]) -> list[int]:
    """Row at which each entry begins, and the row after the last."""
    return [0, *accumulate(heights)]


def entry_at(starts: Sequence[int], row: float) -> int:
    """Index of the entry that covers `row`; the nearest one when none does."""
    return max(0, min(len(starts) - 2, bisect_right(starts, row) - 1))


def wanted(heights: Sequence[int], top: float, rows: int) -> tuple[int, int]:
    """The entries [first, last) within MARGIN screens of a view of `rows` rows that begins at row `top`."""
    if not heights:
        return 0, 0
    starts = edges(heights)
    return entry_at(starts, top - MARGIN * rows), entry_at(starts, top + (1 + MARGIN) * rows) + 1


def rough_rows(text: str, width: int) -> int:
    """Rows that a text takes, about: good enough for what is not on the screen."""
    return sum(1 + len(line) // max(1, width) for line in text.split("\n"))

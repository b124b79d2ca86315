"""Which part of a long list is worth having on the screen. Pure: heights in, ranges out.

What is outside of it has a height, measured or guessed, and nothing else, so that the scrollbar and the position mean
the same wherever the view is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

MARGIN = 1
"""Screens that are rendered on either side of the view: where a page up leads is known before it is taken."""


def edges(heights: Sequence[int]) -> list[int]:
    """Row at which each entry begins, and the row after the last."""
    return [0, *accumulate(heights)]


def entry_at(starts: Sequence[int], row: float) -> int:
    """Index of the entry that covers `row`; the nearest one when none does."""
    return max(0, min(len(starts) - 2, bisect_right(starts, row) - 1))


def wanted(starts: Sequence[int], top: float, rows: int, margin: int = MARGIN) -> tuple[int, int]:
    """The entries [first, last) within `margin` screens of a view of `rows` rows that begins at row `top`."""
    if len(starts) < 2:
        return 0, 0
    return entry_at(starts, top - margin * rows), entry_at(starts, top + (1 + margin) * rows) + 1


def rough_rows(text: str, width: int) -> int:
    """Rows that a text takes, about: good enough for what is not on the screen."""
    return sum(1 + len(line) // max(1, width) for line in text.split("\n"))

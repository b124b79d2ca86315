"""Small curves for a terminal: braille dots, one row of labels. Pure text; knows no training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def curve(values: Sequence[float], width: int = 60, height: int = 6, *, title: str = "") -> list[str]:
    """Lines of a plot: values from left to right, thinned to two dots a column, with the range at the left edge."""
    if not values:
        return []
    points = _thin(values, width * 2)
    low, high = min(points), max(points)
    span = (high - low) or 1.0
    cells = [[0] * width for _ in range(height)]
    for x, value in enumerate(points):
        level = round((value - low) / span * (height * 4 - 1))
        row, dot = divmod(height * 4 - 1 - level, 4)
        cells[row][x // 2] |= _DOTS[dot][x % 2]
    lines = ["".join(chr(0x2800 + cell) for cell in row) for row in cells]
    edges = [f"{high:7.3f}", *[" " * 7] * (height - 2), f"{low:7.3f}"]
    body = [f"{edge} {line}" for edge, line in zip(edges, lines, strict=True)]
    return ([f"{'':7} {title}"] if title else []) + body


def _thin(values: Sequence[float], count: int) -> list[float]:
    """At most `count` values: means of equal stretches."""
    if len(values) <= count:
        return list(values)
    edges = [i * len(values) // count for i in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def bar(share: float, width: int = 24) -> str:
    """A progress bar; share is 0..1."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return "━" * filled + "─" * (width - filled)


def clock(seconds: float) -> str:
    """A length of time in two units: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"

"""Charts out of block characters: columns with an axis, a line over them, reference levels. Pure.

Eighths of a cell are the resolution, as in the panels' own bars; every terminal that shows those shows these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from tui.conversation.stats import BARS

AXIS = 7
"""Columns left of the plot: a number and the line."""
WIDEST = 8
"""Cells of one column at most."""


@dataclass(frozen=True, slots=True)
class Level:
    """A reference across the plot."""

    value: float
    label: str
    style: str = "$warning"


def columns(
    values: Sequence[float],
    width: int,
    height: int,
    *,
    top: float | None = None,
    style: str = "$primary",
    line: Sequence[float] = (),
    levels: Sequence[Level] = (),
    names: Sequence[str] = (),
) -> Content:
    """Values from left to right, the newest at the right; the last ones where not all fit.

    top: the upper end of the axis; None is the largest of what is shown. line: a second series, drawn as dots over the
    columns. names: below the columns, as far as they fit.
    """
    room, rows = max(1, width - AXIS), max(1, height - bool(names))
    shown, over, below = list(values)[-room:], list(line)[-room:], list(names)[-room:]
    high = top if top is not None else max([*shown, *over, *(level.value for level in levels)], default=0.0)
    if not shown or high <= 0:
        return Content.styled("nothing yet", "$faint")
    cell = max(1, min(WIDEST, room // len(shown)))
    drawn = [
        _row(shown, over, levels, rows - 1 - r, rows, high, cell, style, room) for r in range(rows)
    ]  # fmt: skip
    if below:
        marks = "".join(f"{name[:cell]:<{cell}}" if cell > 1 else " " for name in below)
        drawn.append(Content.styled(" " * AXIS + marks, "$faint"))
    return Content("\n").join(drawn)


def _row(
    values: Sequence[float],
    line: Sequence[float],
    levels: Sequence[Level],
    at: int,
    rows: int,
    high: float,
    cell: int,
    style: str,
    room: int,
) -> Content:
    """Row `at` from below."""
    label = number(high * (at + 1) / rows) if at == rows - 1 or at == (rows - 1) // 2 else "0" if at == 0 else ""
    parts: list[tuple[str, str]] = [(f"{label:>{AXIS - 2}} ", "$faint"), ("│" if at else "└", "$faint")]
    level = next((each for each in levels if place(each.value, high, rows) == at), None)
    gap = 1 if cell > 2 else 0
    for i, value in enumerate(values):
        eighths = round(min(max(value / high, 0.0), 1.0) * rows * 8) - 8 * at
        block = BARS[min(8, max(0, eighths))] if eighths > 0 else " "
        if at == 0 and eighths <= 0:
            block = BARS[1]  # a zero is a value, too
        if i < len(line) and place(line[i], high, rows) == at:
            parts.append(("•" * (cell - gap) + " " * gap, "bold"))
        elif level is not None and block == " ":
            parts.append(("╌" * cell, level.style))
        else:
            parts.append((block * (cell - gap), style))
            if gap:
                parts.append(("╌" if level is not None else " ", level.style if level is not None else ""))
    left = room - cell * len(values)
    if level is not None and left > 0:
        text = f" {level.label}"
        parts.append((text if len(text) <= left else "╌" * left, level.style))
    return Content.assemble(*parts)


def place(value: float, high: float, rows: int) -> int:
    """The row from below in which a value ends."""
    return min(rows - 1, max(0, round(value / high * rows * 8) - 1) // 8)


def number(value: float) -> str:
    """Short: 0.85, 3.2, 140."""
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 100 else f"{value:.0f}"

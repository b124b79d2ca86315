"""Tables as rows of columns: natural widths where they fit, the widest columns wrapped where they do not."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from tui.markdown.lines import BLANK, Flow, Line, Run
from tui.markdown.wrap import wrap

GAP = " │ "
NARROW = 4
"""A column is not squeezed below this; a table that would need it is shown row by row instead."""


class Cell(NamedTuple):
    flow: Flow
    side: str = "left"


def table_lines(rows: list[list[Cell]], width: int) -> list[Line]:
    """`rows[0]` is the head."""
    if not rows:
        return []
    columns = max(len(row) for row in rows)
    room = width - len(GAP) * (columns - 1)
    if room < NARROW * columns:
        return _stacked(rows, width)
    widths = _widths(rows, columns, room)
    lines: list[Line] = []
    for n, row in enumerate(rows):
        lines += _row(row, widths)
        if n == 0:
            lines.append(Line((Run("─┼─".join("─" * w for w in widths), "table"),)))
    return lines


def _widths(rows: list[list[Cell]], columns: int, room: int) -> list[int]:
    widths = [1] * columns
    for row in rows:
        for k, cell in enumerate(row):
            widths[k] = max(widths[k], max(cell_len(part) for part in cell.flow.text.split("\n")))
    if sum(widths) <= room:
        return widths
    low, high = NARROW, max(widths)
    while low < high:  # the largest cap that fits
        cap = (low + high + 1) // 2
        low, high = (cap, high) if sum(min(w, cap) for w in widths) <= room else (low, cap - 1)
    capped = [min(w, low) for w in widths]
    for k, w in enumerate(widths):  # hand out what is left
        if w > capped[k] and sum(capped) < room:
            capped[k] += 1
    return capped


def _row(row: list[Cell], widths: list[int]) -> list[Line]:
    cells = [row[k].flow.wrapped(w) if k < len(row) else [BLANK] for k, w in enumerate(widths)]
    lines: list[Line] = []
    for y in range(max(len(cell) for cell in cells)):
        runs: list[Run] = []
        for k, w in enumerate(widths):
            if k:
                runs.append(Run(GAP, "table"))
            line = cells[k][y] if y < len(cells[k]) else BLANK
            blank = max(0, w - cell_len(line.text))
            side = row[k].side if k < len(row) else "left"
            before = blank if side == "right" else blank // 2 if side == "center" else 0
            runs += [Run(" " * before, ""), *line.runs, Run(" " * (blank - before), "")]
        lines.append(Line(tuple(run for run in runs if run.text)))
    return lines


def _stacked(rows: list[list[Cell]], width: int) -> list[Line]:
    """One cell a row, for a window too narrow for columns."""
    lines: list[Line] = []
    for n, row in enumerate(rows):
        if n:
            lines.append(Line((Run("─" * width, "table"),)))
        for cell in row:
            lines += cell.flow.wrapped(width) if wrap(cell.flow.text, width) else []
    return lines

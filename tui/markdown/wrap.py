"""Rows by cell width: words first, graphemes when a word is wider than the row.

Widths are those of the terminal library (wide characters count two), so that what is measured here is what is drawn.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes

_WIDE = (
    "\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
)
_NO_START = "、。，．・：；？！」』）］｝〉》】〕”’…!?,.;:)]}"
_CHUNK = re.compile(
    rf"[{_WIDE}][{re.escape(_NO_START)}]*[ \t]*"  # an ideograph may break after itself, not before closing marks
    rf"|[^\s{_WIDE}]+[{re.escape(_NO_START)}]*\s*"
    r"|\s+"
)


class Row(NamedTuple):
    """A slice of the wrapped text. `joint` is what stood between it and the row before: a newline, or the blank or
    nothing at which the row was broken, which is what a copy puts back."""

    start: int
    end: int
    joint: str


def wrap(text: str, width: int) -> list[Row]:
    """Break `text` into rows of at most `width` cells; trailing blanks of a broken row are dropped."""
    rows: list[Row] = []
    start = 0
    for line in text.split("\n"):
        _wrap_line(line, start, max(1, width), rows)
        start += len(line) + 1
    return rows


def chop(text: str, width: int) -> list[Row]:
    """Break one line at the width, anywhere between graphemes; blanks are kept (code)."""
    if cell_len(text) <= width:
        return [Row(0, len(text), "\n")]
    return [Row(start, end, "\n" if start == 0 else "") for start, end in _pieces(text, max(1, width))]


def _wrap_line(line: str, offset: int, width: int, rows: list[Row]) -> None:
    if cell_len(line) <= width:
        rows.append(Row(offset, offset + len(line), "\n"))
        return
    start = end = used = 0
    joint = "\n"
    gap = ""
    for match in _CHUNK.finditer(line):
        chunk = match[0]
        word = chunk.rstrip()
        cells = cell_len(word)
        blank = cell_len(gap)
        if used + blank and used + blank + cells > width:
            if used:
                rows.append(Row(offset + start, offset + end, joint))
                joint = " " if gap else ""
            start, used, blank = match.start(), 0, 0
        if cells > width:
            pieces = _pieces(word, width)
            for _, b in pieces[:-1]:
                rows.append(Row(offset + start, offset + match.start() + b, joint))
                start, joint = match.start() + b, ""
            used, blank = cell_len(word[pieces[-1][0] :]), 0
        else:
            used += blank + cells
        end = match.start() + len(word)
        gap = chunk[len(word) :]
    rows.append(Row(offset + start, offset + end, joint))


def _pieces(text: str, width: int) -> list[tuple[int, int]]:
    """Cut by graphemes into pieces of at most `width` cells (one grapheme at least)."""
    pieces: list[tuple[int, int]] = []
    start = used = 0
    for begin, _end, cells in split_graphemes(text)[0]:
        if used and used + cells > width:
            pieces.append((start, begin))
            start, used = begin, 0
        used += cells
    pieces.append((start, len(text)))
    return pieces

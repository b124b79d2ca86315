"""Lines of styled runs: what a block becomes, before a theme turns style names into colours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tui.markdown.wrap import Row, chop, wrap
from tui.provenance import NONE, runs

TAB = 4
"""Columns that a tab becomes: a cell of a terminal has no tab stops of its own."""


class Run(NamedTuple):
    """Neighbouring characters of one look. `style` is a blank-separated list of names, empty for plain prose."""

    text: str
    style: str = ""
    prov: int = NONE


class Line(NamedTuple):
    """One row. `joint` is what a copy puts between it and the row before."""

    runs: tuple[Run, ...]
    joint: str = "\n"

    @property
    def text(self) -> str:
        return "".join(run.text for run in self.runs)


BLANK = Line(())


class Flow:
    """Styled text being put together: text, the style of each stretch, and provenance of each character."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._provs: list[bytes] = []
        self._styles: list[tuple[int, str]] = []
        self._length = 0

    def add(self, text: str, style: str, prov: bytes | None = None) -> None:
        if not text:
            return
        if "\t" in text:
            prov = (
                None
                if prov is None
                else b"".join(prov[i : i + 1] * (TAB if c == "\t" else 1) for i, c in enumerate(text))
            )
            text = text.replace("\t", " " * TAB)
        self._parts.append(text)
        self._provs.append(bytes(len(text)) if prov is None else prov)
        self._length += len(text)
        self._styles.append((self._length, style))

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def wrapped(self, width: int) -> list[Line]:
        """Rows of at most `width` cells, broken at words."""
        return self._lines(wrap(self.text, width))

    def chopped(self, width: int) -> list[Line]:
        """Rows of one line of code, broken anywhere."""
        return self._lines(chop(self.text, width))

    def _lines(self, rows: list[Row]) -> list[Line]:
        text, prov = self.text, b"".join(self._provs)
        lines: list[Line] = []
        k = 0
        for row in rows:
            while k and self._styles[k - 1][0] > row.start:
                k -= 1
            out: list[Run] = []
            at = row.start
            while at < row.end:
                while self._styles[k][0] <= at:
                    k += 1
                stop, style = self._styles[k]
                stop = min(stop, row.end)
                for a, b, code in runs(prov[at:stop]):
                    _push(out, Run(text[at + a : at + b], style, code))
                at = stop
            lines.append(Line(tuple(out), row.joint))
        return lines


def _push(out: list[Run], run: Run) -> None:
    if out and out[-1].style == run.style and out[-1].prov == run.prov:
        out[-1] = Run(out[-1].text + run.text, run.style, run.prov)
    else:
        out.append(run)


def prefixed(lines: Iterable[Line], first: Run, rest: Run) -> list[Line]:
    """Put a bullet before the first row and its width in blanks (or a bar) before the others."""
    return [Line((rest if i else first, *line.runs), line.joint) for i, line in enumerate(lines)]

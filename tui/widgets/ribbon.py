"""One cell a round, newest right: height is what it committed, colour is where most of it came from."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from engine.types import Source
from tui.conversation.session import ChatSession
from tui.conversation.stats import BARS, Tick

FLAT = 4
"""A round of one token is a low bar, also where there are only such rounds."""
LETTERS = {Source.DRAFT: "D", Source.LOOKUP: "L", Source.TARGET: "t"}


def ribbon(ticks: Sequence[Tick], width: int, letters: bool = False) -> Content:
    """The last rounds that fit; `╎` stands before a round in which the drafter changed."""
    cells: list[tuple[str, str]] = []
    high = max(FLAT, *(tick.height for tick in ticks)) if ticks else FLAT
    for tick in ticks:
        if tick.switched:
            cells.append(("╎", "$warning"))
        height = BARS[1 + round((tick.height / high) * 7)] if tick.height else BARS[1]
        cells.append((LETTERS[tick.source] if letters else height, f"$source-{tick.source}"))
    return Content.assemble(*cells[-width:]) if width > 0 else Content("")


def note_of(session: ChatSession) -> str:
    """What goes on, in a few words."""
    if session.engine is None:
        return "loading"
    return f"answering · {session.turn.answer.tally.tokens} tok" if session.turn is not None else ""


class Ribbon(Static):
    """The ribbon with a word of help when it is empty."""

    DEFAULT_CSS = """
    Ribbon { height: 1; padding: 0 1; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.letters = False
        self._last: tuple[Sequence[Tick], str] = ((), "")

    def show(self, ticks: Sequence[Tick], note: str) -> None:
        self._last = ticks, note
        self.on_resize()

    def on_resize(self) -> None:
        ticks, note = self._last
        width = self.size.width
        if not width:
            return
        right = Content(note).truncate(max(0, width - 1), ellipsis=True)
        left = ribbon(ticks, max(0, width - right.cell_length - 2), self.letters)
        row = Content.assemble(left, " " * max(1, width - left.cell_length - right.cell_length), right)
        self.update(row, layout=False)

"""What a conversation on the screen is made of: entries one below the other, of which those near the view are rows and
the others are guesses of how many rows they would be. Knows no screen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from textual.content import Content
from textual.strip import Strip

from tui.conversation.chat import Turn
from tui.markdown.lines import BLANK, Line
from tui.widgets.transcript.answer import AnswerView
from tui.widgets.transcript.message import UserView
from tui.widgets.transcript.viewport import edges, entry_at, rough_rows, wanted

KEPT = 16_000
"""Rows that are kept rendered besides those near the view: a kilobyte each, and half of what a page costs."""
DRAWN = 4_000
"""Of these, rows that are kept as they were drawn: four kilobytes each, and most of the other half."""
ROWS = 1 << 20
"""More than one entry has: `key` of a row stays the same whatever grows above it."""
TOP = 1
"""Blank rows above the first entry."""
AROUND = 3
"""Rows around the text of a notice: one above and one below in its colour, and a blank one."""


@dataclass(slots=True, eq=False)
class Entry:
    """A turn, or something that was said beside the conversation."""

    turn: Turn | None = None
    notice: Content | None = None
    id: str = ""
    """Of a notice that may be said anew or taken away."""
    serial: int = 0
    rows: int = 0
    """Height, the blank row after it included; exact when `width` is the width of now."""
    width: int = 0
    """The width for which `rows` was measured; 0: never."""
    unfolded: bool = False
    """Whether the reasoning is, while there is no view of it."""
    user: UserView | None = None
    answer: AnswerView | None = None
    strips: dict[int, Strip] = field(default_factory=dict)
    """Rows that were drawn."""

    def key(self, row: int) -> int:
        """A number for one of its rows that grows down the conversation, for selections."""
        return self.serial * ROWS + row

    @property
    def above(self) -> int:
        """Rows before the answer."""
        return self.user.rows(self.width) if self.user is not None and self.width else 0

    def measure(self, width: int) -> None:
        """Find out the exact height."""
        self.strips.clear()
        self.width = width
        if self.notice is not None:
            self.rows = self.notice.get_height({}, max(1, width - 4)) + AROUND
        elif self.user is not None and self.answer is not None:
            self.rows = self.user.rows(width) + self.answer.rows(width)

    def guess(self, width: int) -> None:
        """About how high it is."""
        self.width = 0
        if self.turn is not None:
            self.rows = rough_rows(self.turn.user, width) + rough_rows(self.turn.answer.text, width) + 2 + 3

    def line(self, row: int) -> Line:
        """A row of a turn that has views."""
        if self.user is None or self.answer is None:
            return BLANK
        above = self.above
        return self.user.line(row) if row < above else self.answer.line(row - above)

    @property
    def said(self) -> int:
        """Rows that a selection takes: not the figures under an answer."""
        if self.notice is not None:
            return self.rows - 1
        return self.above + self.answer.said if self.answer is not None else self.rows


class Column:
    """The entries and where they are."""

    def __init__(self, dress: Callable[[Entry], None]) -> None:
        self.entries: list[Entry] = []
        self.width = 0
        self._materialise = dress
        """Gives an entry its views."""
        self._starts: list[int] | None = None
        self._of: dict[str, Entry] = {}
        self._serial = 0
        self._recent: OrderedDict[Entry, None] = OrderedDict()
        """Entries with views, that which was near the view last at the end."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def of(self, turn: Turn) -> Entry | None:
        return self._of.get(turn.id)

    def clear(self) -> None:
        self.entries.clear()
        self._of.clear()
        self._recent.clear()
        self._starts = None

    def append(self, entry: Entry) -> None:
        self._serial += 1
        entry.serial = self._serial
        entry.guess(self.width or 80)
        self.entries.append(entry)
        if entry.turn is not None:
            self._of[entry.turn.id] = entry
        self._starts = None

    def remove(self, entry: Entry) -> None:
        self.entries.remove(entry)
        self._recent.pop(entry, None)
        if entry.turn is not None:
            self._of.pop(entry.turn.id, None)
        self._starts = None

    def changed(self, entry: Entry) -> None:
        """It is to be measured again."""
        entry.width = 0
        entry.strips.clear()

    def grown(self, entry: Entry) -> None:
        """It says itself how high it is by now."""
        if entry.answer is not None and entry.rows != (rows := entry.above + entry.answer.height):
            entry.rows, self._starts = rows, None

    def resize(self, width: int) -> None:
        """Another width is another height for everything."""
        if width != self.width:
            self.width, self._starts = width, None
            for entry in self.entries:
                entry.guess(width)

    @property
    def starts(self) -> list[int]:
        """Row at which each entry begins, and the row after the last."""
        if self._starts is None:
            self._starts = [TOP + start for start in edges([entry.rows for entry in self.entries])]
        return self._starts

    @property
    def height(self) -> int:
        return self.starts[-1]

    def at(self, row: float) -> tuple[Entry, int] | None:
        """The entry at a row, and which of its rows that is."""
        starts = self.starts
        if not self.entries or not starts[0] <= row < starts[-1]:
            return None
        index = entry_at(starts, row)
        return self.entries[index], int(row) - starts[index]

    def place(self, row: float) -> tuple[int, float]:
        """A row as (index of an entry, rows into it): what stays true while others change their heights."""
        index = entry_at(self.starts, row) if self.entries else 0
        return index, row - self.starts[index]

    def row(self, place: tuple[int, float]) -> float:
        return self.starts[place[0]] + place[1]

    def exact(self, top: float, rows: int, margin: int) -> bool:
        """Whether all entries within `margin` screens of a view of `rows` rows at `top` are rendered."""
        return not self._unready(*wanted(self.starts, top, rows, margin))

    def render(self, top: Callable[[], float], rows: int, margin: int) -> None:
        """Render what is within `margin` screens of a view at row `top()`, which moves while guesses are corrected."""
        while True:
            first, last = wanted(self.starts, top(), rows, margin)
            unready = self._unready(first, last)
            if not unready:
                break
            for entry in unready:
                if entry.turn is not None and entry.answer is None:
                    self._materialise(entry)
                entry.measure(self.width)
            self._starts = None
        for entry in self.entries[first:last]:
            if entry.turn is not None:
                self._recent[entry] = None
                self._recent.move_to_end(entry)
        self._forget(last - first)

    def _unready(self, first: int, last: int) -> list[Entry]:
        return [
            entry
            for entry in self.entries[first:last]
            if entry.width != self.width or (entry.turn is not None and entry.answer is None)
        ]

    def _forget(self, near: int) -> None:
        """Take from what was not near for long its drawn rows, then its views; an answer that streams keeps its own."""
        kept = 0
        for n, entry in enumerate([*reversed(self._recent)]):
            kept += entry.rows if n >= near else 0
            if kept > DRAWN:
                entry.strips.clear()
            if kept > KEPT and entry.turn is not None and entry.turn.answer.status.over:
                entry.unfolded = entry.answer is not None and entry.answer.unfolded
                entry.user = entry.answer = None
                del self._recent[entry]

    def forget_strips(self) -> None:
        """Every row is to be drawn anew."""
        for entry in self.entries:
            entry.strips.clear()

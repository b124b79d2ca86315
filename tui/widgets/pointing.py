"""The block cursor of the conversation: over what the user said and the blocks of answers. A mixin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.chat import Turn
from tui.markdown.document import Part
from tui.widgets.entries import Column, Entry

if TYPE_CHECKING:
    from textual.widget import Widget

    Base = Widget
else:
    Base = object  # a widget class here would come before the scroll view that it is mixed into


class Pointing(Base):
    """Needs the attributes below from the conversation."""

    if TYPE_CHECKING:
        column: Column

        def reveal(self, turn: Turn, row: int | None = None) -> None: ...

    _at: tuple[Entry, int] | None = None
    """A turn, and a part of its answer, -1 being what the user said."""

    def step(self, by: int) -> bool:
        """Move the block cursor, from the end where it was nowhere; whether there was somewhere to go."""
        turns = [entry for entry in self.column if entry.turn is not None]
        if not turns:
            return False
        if self._at is None or self._at[0] not in turns:
            entry = turns[-1]
            part = len(self._parts(entry)) - 1
        else:
            entry, part = self._at
            part += by
            at = turns.index(entry)
            if part < -1 and at > 0:
                entry = turns[at - 1]
                part = len(self._parts(entry)) - 1
            elif part >= len(self._parts(entry)) and at + 1 < len(turns):
                entry, part = turns[at + 1], -1
        self._point(entry, max(-1, min(part, len(self._parts(entry)) - 1)))
        return True

    @property
    def pointed(self) -> tuple[Turn, Part | None] | None:
        """The turn under the block cursor, and the part of its answer; None is what the user said."""
        if self._at is None or self._at[0].turn is None:
            return None
        return self._at[0].turn, self._part()

    def is_pointed(self, entry: Entry, row: int) -> bool:
        """Whether the block cursor is on this row."""
        if self._at is None or self._at[0] is not entry:
            return False
        part = self._part()
        if part is None:
            return row < entry.above - 1
        return part.first <= row - entry.above < part.last

    def unpoint(self) -> bool:
        """Take the block cursor off; whether it was there."""
        was, self._at = self._at, None
        if was is not None:
            self.refresh()
        return was is not None

    def on_blur(self) -> None:
        if self.app.screen is self.screen:
            self.unpoint()

    def _part(self) -> Part | None:
        assert self._at is not None
        entry, index = self._at
        parts = entry.answer.parts() if entry.answer is not None else []
        return parts[index] if 0 <= index < len(parts) else None

    def _parts(self, entry: Entry) -> list[Part]:
        if entry.answer is None and entry.turn is not None:
            self.reveal(entry.turn)
        return entry.answer.parts() if entry.answer is not None else []

    def _point(self, entry: Entry, index: int) -> None:
        self._at = (entry, index)
        part = self._part()
        self.refresh()
        if entry.turn is not None:
            self.reveal(entry.turn, part.first if part is not None else None)

"""The block cursor of the conversation: over what the user said and the blocks of answers. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable

from tui.conversation.chat import Turn
from tui.markdown.document import Part
from tui.widgets.transcript.items import Column, Entry


class BlockCursor:
    """A place in a column. `reveal(turn, row)` brings what it moves to into view, which has it rendered."""

    def __init__(self, column: Column, reveal: Callable[[Turn, int | None], None]) -> None:
        self._column = column
        self._reveal = reveal
        self._at: tuple[Entry, int] | None = None
        """A turn, and a part of its answer, -1 being what the user said."""

    def step(self, by: int) -> bool:
        """Move, from the end where it was nowhere; whether there was somewhere to go."""
        turns = [entry for entry in self._column if entry.turn is not None]
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
        self._at = (entry, max(-1, min(part, len(self._parts(entry)) - 1)))
        here = self._part()
        if entry.turn is not None:
            self._reveal(entry.turn, here.first if here is not None else None)
        return True

    @property
    def at(self) -> tuple[Turn, Part | None] | None:
        """The turn, and the part of its answer; None is what the user said."""
        if self._at is None or self._at[0].turn is None:
            return None
        return self._at[0].turn, self._part()

    def is_in(self, entry: Entry) -> bool:
        return self._at is not None and self._at[0] is entry

    def covers(self, entry: Entry, row: int) -> bool:
        """Whether it is on this row."""
        if not self.is_in(entry):
            return False
        part = self._part()
        if part is None:
            return row < entry.above - 1
        return part.first <= row - entry.above < part.last

    def leave(self) -> bool:
        """Take it off; whether it was there."""
        was, self._at = self._at, None
        return was is not None

    def _part(self) -> Part | None:
        if self._at is None:
            return None
        entry, index = self._at
        parts = entry.answer.parts() if entry.answer is not None else []
        return parts[index] if 0 <= index < len(parts) else None

    def _parts(self, entry: Entry) -> list[Part]:
        if entry.answer is None and entry.turn is not None:
            self._reveal(entry.turn, None)
        return entry.answer.parts() if entry.answer is not None else []

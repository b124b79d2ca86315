"""All chats: search, open, rename, delete, and take the deletion back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from tui.conversation.stats import counted
from tui.conversation.store import Store
from tui.screens.picker import Item, PickScreen


class SessionsScreen(PickScreen):
    """Returns the id of the chat to open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d,delete", "delete", show=False, priority=True),
        Binding("ctrl+z", "undo", show=False, priority=True),
        Binding("f2,ctrl+e", "rename", show=False, priority=True),
    ]
    heading = "Chats"
    hint = "type to search all text · Enter opens · Ctrl+E renames · Ctrl+D deletes · Ctrl+Z undoes · Esc leaves"

    def __init__(self, store: Store, current: str) -> None:
        super().__init__()
        self._store = store
        self._current = current
        self._renaming: str | None = None
        self.deleted: list[str] = []
        self.words = ""
        """What was searched for."""

    def items(self, filter: str) -> Sequence[Item]:
        if self._renaming is not None:
            filter = ""
        self.words = filter
        rows = self._store.search(filter) if filter else self._store.list()
        return [
            Item(
                row.id,
                row.name,
                " · ".join(part for part in (age(row.updated), counted(row.turns, "turn"), row.found) if part),
                current=row.id == self._current,
            )
            for row in rows
        ]

    def action_delete(self) -> None:
        if self.current is not None and self._renaming is None:
            self.deleted.append(self.current)
            self._store.delete(self.current)
            self._store.settle()
            self.fill()

    def action_undo(self) -> None:
        if self.deleted:
            self._store.restore(self.deleted.pop())
            self._store.settle()
            self.fill()

    def action_rename(self) -> None:
        """The filter line becomes the title."""
        if self.current is None:
            return
        self._renaming = self.current
        line = self.query_one(Input)
        line.placeholder = "new title, Enter keeps it, Esc does not"
        line.value = ""
        line.focus()

    def action_choose(self) -> None:
        if self._renaming is None:
            super().action_choose()
            return
        title = self.query_one(Input).value.strip()
        if title:
            self._store.rename(self._renaming, title)
            self._store.settle()
        self._end_renaming()

    def action_dismiss_none(self) -> None:
        if self._renaming is None:
            super().action_dismiss_none()
        else:
            self._end_renaming()

    def _end_renaming(self) -> None:
        self._renaming = None
        line = self.query_one(Input)
        line.placeholder = "filter"
        line.value = ""
        self.fill()


def age(then: float, now: float | None = None) -> str:
    """`5 min ago`, `3 h ago`, a date."""
    passed = (time.time() if now is None else now) - then
    if passed < 90:
        return "just now"
    if passed < 5400:
        return f"{passed / 60:.0f} min ago"
    if passed < 86400:
        return f"{passed / 3600:.0f} h ago"
    return time.strftime("%Y-%m-%d", time.localtime(then))

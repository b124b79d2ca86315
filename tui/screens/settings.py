"""All settings: what each is, who decided it, and a line to change it, for good or for this session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, Static

from engine.chat.terminal_safe import one_line
from engine.errors import UsageError
from tui.commands.settings_commands import decided
from tui.screens.picker import Item, PickScreen
from tui.settings.settings import NOW, Row

Put = Callable[[str, str, bool], str]
"""(name, value, this session only) → the sentence that says what came of it. Raises UsageError."""


LONGEST = 24
COLUMN = 28


class SettingsScreen(PickScreen):
    """Changes settings through `put` and stays open; returns nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "choose(True)", show=False, priority=True),
        Binding("ctrl+d", "reset", show=False, priority=True),
    ]
    heading = "Settings"
    hint = "type to filter · Enter changes · Ctrl+D back to the default · Esc leaves"

    def __init__(self, rows: Callable[[], Sequence[Row]], put: Put) -> None:
        super().__init__()
        self._rows = rows
        self._put = put
        self._editing: Row | None = None

    def items(self, filter: str) -> Sequence[Item]:
        words = [] if self._editing is not None else filter.lower().split()
        out: list[Item] = []
        # What is changed often stands first.
        for row in sorted(self._rows(), key=lambda row: row.group not in NOW):
            if all(word in f"{row.name} {row.help} {row.source}".lower() for word in words):
                value = one_line(row.value) or "empty"
                value = value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"
                later = "" if row.group in NOW else " · next start"
                out.append(Item(row.name, f"{row.name} = {value}", f"{row.help}{decided(row)}{later}", column=COLUMN))
        return out

    def action_choose(self, for_session: bool = False) -> None:
        """Open the line for the highlighted setting; or take what was written there."""
        line = self.query_one(Input)
        if self._editing is None:
            row = next((r for r in self._rows() if r.name == self.current), None)
            if row is not None:
                self._editing = row
                line.placeholder = f"{row.name}: {row.takes}"
                line.value = "" if row.value == "–" else row.value
                line.focus()
                self._say("Enter keeps it in the settings file · Ctrl+T for this session only · Esc leaves it as it is")
        else:
            self._change(self._editing.name, line.value.strip() or "default", for_session)

    def action_reset(self) -> None:
        name = self._editing.name if self._editing is not None else self.current
        if name is not None:
            self._change(name, "default", False)

    def action_dismiss_none(self) -> None:
        if self._editing is None:
            super().action_dismiss_none()
        else:
            self._end()
            self._say(self.hint)

    def _change(self, name: str, value: str, for_session: bool) -> None:
        try:
            said = self._put(name, value, for_session)
        except UsageError as error:
            self._say(str(error), "$error")
            return
        self._end()
        self._say(said)

    def _end(self) -> None:
        self._editing = None
        line = self.query_one(Input)
        line.placeholder = "filter"
        line.value = ""
        self.fill()

    def _say(self, text: str, style: str = "") -> None:
        self.query_one("#hint", Static).update(Content.styled(one_line(text), style))

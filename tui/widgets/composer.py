"""The input: several lines, history, pastes as one message, visible characters as units.

Knows nothing of what a message is for: it posts `Submitted`.
"""

from __future__ import annotations

import time

from textual import events
from textual.document._document import Location
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

from engine.sanitize import clean
from tui.graphemes import next_boundary, previous_boundary
from tui.history import History

NEWLINE = frozenset({"ctrl+j", "shift+enter", "alt+enter", "ctrl+enter"})
BURST = 0.008
"""Keys closer than this were not typed by a person."""
SETTLE = 0.04
"""How long an Enter in a burst waits for more: if more comes, it was a pasted newline."""


class Composer(TextArea):
    """A message being written."""

    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 3;
        max-height: 12;
        padding: 0 1;
        border: round $foreground 25%;
        background: $background;
        &:focus { border: round $primary; }
        &:ansi { border: round ansi_default; &:focus { border: round ansi_blue; } }
        & .text-area--cursor-line { background: transparent; }
    }
    """

    class Submitted(Message):
        """The user sent `text`."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class HelpWanted(Message):
        """`?` on an empty message."""

    class CompletionWanted(Message):
        """Tab on the beginning of a command."""

    class Edited(Message):
        """The text changed; for completion."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, inputs: History | None = None, id: str | None = None) -> None:
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False,
            placeholder="Message…   Enter sends · Ctrl+J new line · / commands · ? keys",
        )  # fmt: skip
        self.inputs = inputs or History()
        self.search_text = ""
        self.search_at: int | None = None
        """Where the search in the history stands."""
        self._last_key = 0.0
        self._pending: Timer | None = None
        """A send that waits to see whether its Enter was typed."""

    async def _on_key(self, event: events.Key) -> None:
        now = time.monotonic()
        burst = now - self._last_key < BURST
        self._last_key = now
        if self._pending is not None and (event.is_printable or event.key == "enter"):
            self._pending.stop()
            self._pending = None
            self.insert("\n")
        if event.is_printable or event.key == "backspace":
            self.search_text, self.search_at = "", None
        if self._handle(event, burst):
            event.stop()
            event.prevent_default()

    def _handle(self, event: events.Key, burst: bool) -> bool:
        if event.key in NEWLINE:
            self.insert("\n")
        elif event.key == "enter":
            if burst:
                self._pending = self.set_timer(SETTLE, self._send)
            else:
                self._send()
        elif event.key == "up" and self.cursor_location[0] == 0 and not self.selected_text:
            return self._recall(self.inputs.back(self.text))
        elif event.key == "down" and self.cursor_location[0] == self.document.line_count - 1:
            return self._recall(self.inputs.forward())
        elif event.key == "tab" and self.text.startswith("/"):
            self.post_message(self.CompletionWanted())
        elif event.character == "?" and not self.text:
            self.post_message(self.HelpWanted())
        else:
            return False
        return True

    def _send(self) -> None:
        self._pending = None
        text = self.text
        row, column = self.cursor_location
        if self.document[row][:column].endswith("\\") and column == len(self.document[row]):
            self.action_delete_left()
            self.insert("\n")
            return
        if text.strip():
            self.post_message(self.Submitted(text))

    def clear_sent(self) -> None:
        """The message was taken: remember it and start afresh."""
        self.inputs.add(self.text)
        self.load_text("")

    def _recall(self, text: str | None) -> bool:
        if text is None:
            return False
        self.load_text(text)
        self.move_cursor(self.document.end)
        return True

    def show_found(self, text: str, needle: str, index: int) -> None:
        """An earlier message that a search found; searching again goes on from there."""
        self.load_text(text)
        self.move_cursor(self.document.end)
        self.search_text, self.search_at = needle, index

    async def _on_paste(self, event: events.Paste) -> None:
        """One insertion, newlines kept; control sequences in it never reach the screen."""
        event.stop()
        event.prevent_default()
        text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def on_text_area_changed(self) -> None:
        self.post_message(self.Edited(self.text))

    def get_cursor_left_location(self) -> Location:
        row, column = self.cursor_location
        if column == 0:
            return super().get_cursor_left_location()
        return row, previous_boundary(self.document[row], column)

    def get_cursor_right_location(self) -> Location:
        row, column = self.cursor_location
        line = self.document[row]
        if column >= len(line):
            return super().get_cursor_right_location()
        return row, next_boundary(line, column)

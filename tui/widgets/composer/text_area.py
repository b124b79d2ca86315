"""The input: several lines, history and a search in it, pastes as one word, visible characters as units.

Knows nothing of what a message is for: it posts `Submitted`, with the long pastes in it written out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.document._document import Location
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from engine.chat.terminal_safe import clean, one_line
from tui.conversation.input_history import Form, History, Search
from tui.keys import message_keys, pretty
from tui.widgets.composer.characters import next_boundary, previous_boundary
from tui.widgets.composer.paste_chips import Chips

NEWLINE = "ctrl+j"
CHOOSING = frozenset({"up", "down", "tab", "enter"})
"""Keys that a list of completions takes while it is open."""
ENDING = frozenset({"enter", "tab", "left", "right", "home", "end", "delete", NEWLINE})
"""Keys that end a search and keep what it found; all but the first two then do what they always do."""
BURST = 0.008
"""Keys closer than this were not typed by a person."""
SETTLE = 0.04
"""How long an Enter in a burst waits for more: if more comes, it was a pasted newline."""


class ComposerTextArea(TextArea):
    """A message being written."""

    DEFAULT_CSS = """
    ComposerTextArea {
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

    # Ctrl+Z belongs to the shell.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+underscore,super+z", "undo", show=False, id="undo")]

    class Submitted(Message):
        """The user sent `text`."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class PasteWanted(Message):
        """Ctrl+V: text or a picture."""

    class HelpWanted(Message):
        """`?` on an empty message."""

    class Edited(Message):
        """The text changed, or the cursor moved; for completion."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, inputs: History | None = None, id: str | None = None) -> None:
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False,
        )  # fmt: skip
        self.map_keys({})
        self.cursor_blink = False  # an idle app has nothing to draw
        self.inputs = inputs or History()
        self.chips = Chips()
        self.search: Search | None = None
        self.choose: Callable[[str], bool] = lambda key: False
        """Gives a key to the list of completions; whether it took it."""
        self.take_back: Callable[[], str | None] = lambda: None
        """The message that waits to be sent, which then waits no longer."""
        self._recalled: str | None = None
        """What was put here by no typing; it is not completed."""
        self._last_key = 0.0
        self._pending: Timer | None = None
        """A send that waits to see whether its Enter was typed."""

    def map_keys(self, mapped: Mapping[str, str]) -> None:
        """Keys that the user wants for an id of the message."""
        self._keys = message_keys(mapped)
        send, newline = (
            next((key for key, does in self._keys.items() if does == own), "") for own in ("enter", NEWLINE)
        )
        self.placeholder = (
            f"Message…   {pretty(send)} sends · {pretty(newline)} new line · / commands · @ files · ? keys"
        )

    # Keys -------------------------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        now = time.monotonic()
        burst = now - self._last_key < BURST
        # After an arrow an Enter is no pasted newline, however soon it comes.
        self._last_key = now if event.is_printable or event.key == "enter" else 0.0
        if self._pending is not None and (event.is_printable or event.key == "enter"):
            self._pending.stop()
            self._pending = None
            self.insert("\n")
        key = self._keys.get(event.key, event.key)
        if self._searched(event, key) or self._handle(event, key, burst):
            event.stop()
            event.prevent_default()

    def _handle(self, event: events.Key, key: str, burst: bool) -> bool:
        pasted = burst and event.key == "enter"
        if key in CHOOSING and not pasted and self.choose(key):
            pass
        elif key == NEWLINE:
            self.insert("\n")
        elif key == "enter":
            if pasted:
                self._pending = self.set_timer(SETTLE, self.action_send)
            else:
                self.action_send()
        elif key == "up" and self.cursor_location[0] == 0 and not self.selected_text:
            return self._back()
        elif key == "down" and self.cursor_location[0] == self.document.line_count - 1:
            return self._recall(self.inputs.forward())
        elif key == "tab":
            return self._unfold()
        elif event.character == "?" and not self.text:
            self.post_message(self.HelpWanted())
        else:
            return False
        return True

    def action_send(self) -> None:
        self._pending = None
        row, column = self.cursor_location
        if self.document[row][:column].endswith("\\") and column == len(self.document[row]):
            self.action_delete_left()
            self.insert("\n")
            return
        if self.text.strip():
            self.post_message(self.Submitted(self.message))

    # What is written --------------------------------------------------------------------------------------------------

    @property
    def message(self) -> str:
        """The whole text, pastes written out."""
        return self.chips.expand(self.text)

    @property
    def before(self) -> str | None:
        """The line up to the cursor, while somebody types in it; commands are only on a line of their own."""
        row, column = self.cursor_location
        line = self.document[row]
        if self.search is not None or self.text == self._recalled or not self.selection.is_empty:
            return None
        alone = self.document.line_count == 1 and column == len(line)
        return line[:column] if alone or not line.startswith("/") else None

    def complete(self, start: int, text: str) -> None:
        """Put `text` between column `start` of the line and the cursor."""
        row, column = self.cursor_location
        if result := self._replace_via_keyboard(text, (row, start), (row, column)):
            self.move_cursor(result.end_location)

    def write(self, text: str) -> None:
        """Another message in the place of this one, its long pastes as chips again."""
        form = self.inputs.form(text)
        self.chips.know(form.pastes)
        self.load_text(form.shown if form.pastes else self.chips.fold(text))
        self._recalled = self.text
        self.move_cursor(self.document.end)

    def clear_sent(self) -> None:
        """The message was taken: remember it and start afresh."""
        pastes = self.chips.used(self.text)
        self.inputs.add(self.message, Form(self.text, pastes) if pastes else None)
        self.chips = Chips()
        self._recalled = None
        self.load_text("")

    def _back(self) -> bool:
        """↑: what waits to be sent, else the input before."""
        waiting = self.take_back() if not self.text else None
        if waiting is not None:
            self.write(waiting)
            return True
        return self._recall(self.inputs.back(self.text))

    def _recall(self, text: str | None) -> bool:
        if text is None:
            return False
        self.write(text)
        return True

    # Searching what was sent ------------------------------------------------------------------------------------------

    def search_older(self) -> None:
        """Begin to search the history, or go on to the next older find."""
        if self.search is None:
            self.search = Search(self.inputs, self.text)
            if self.text.strip():
                self.search.say(self.text)
        else:
            self.search.older()
        self._show_search()

    def end_search(self, keep: bool) -> None:
        """Leave the search, with what was found or with what was written before."""
        if self.search is None:
            return
        search, self.search = self.search, None
        if not keep:
            self.write(search.draft)
        self._show_search()

    def _searched(self, event: events.Key, key: str) -> bool:
        """Whether a search is on and took this key."""
        search = self.search
        if search is None:
            return False
        if event.is_printable and event.character:
            search.say(search.needle + event.character)
        elif event.key == "backspace":
            search.say(search.needle[: previous_boundary(search.needle, len(search.needle))])
        elif key in ("up", "down"):
            search.older() if key == "up" else search.newer()
        elif event.key in ("escape", "ctrl+g"):
            self.end_search(keep=False)
            return True
        elif key in ENDING:
            self.end_search(keep=True)
            return key in ("enter", "tab")
        else:
            return False
        self._show_search()
        return True

    def _show_search(self) -> None:
        search = self.search
        self.border_title = self.border_subtitle = None
        if search is not None:
            if search.found is not None:
                self.write(search.found)
            failing = "no message with" if search.failing else "search"
            self.border_title = Content(f"{failing}: {one_line(search.needle)}▏")
            self.border_subtitle = "Ctrl+R older · Enter takes it · Esc goes back"

    # Pastes -----------------------------------------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        """One insertion, newlines kept; control sequences in it never reach the screen."""
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Put text at the cursor; a long one as a chip."""
        self.end_search(keep=True)
        text = clean(text.replace("\r\n", "\n").replace("\r", "\n"))
        if self.chips.wanted(text):
            text = self.chips.add(text)
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def action_paste(self) -> None:
        """What the clipboard holds takes a moment to find out; the app does it."""
        self.post_message(self.PasteWanted())

    def _unfold(self) -> bool:
        """Tab on a chip opens it; whether there was one."""
        row, column = self.cursor_location
        span = self.chips.touching(self.document[row], column)
        if span is None:
            return False
        label = self.document[row][slice(*span)]
        if result := self._replace_via_keyboard(self.chips.texts[label], (row, span[0]), (row, span[1])):
            self.move_cursor(result.end_location)
        return True

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        for start, end in self.chips.spans(line.plain):
            line.stylize("reverse", start, end)
        return line

    # Moving by what is seen -------------------------------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        self.post_message(self.Edited(self.text))

    def on_text_area_selection_changed(self) -> None:
        """A cursor that a click or ↑ put into a chip goes to its nearer end."""
        row, column = self.cursor_location
        span = self.chips.around(self.document[row], column) if self.selection.is_empty else None
        if span is not None:
            start, end = span
            at = row, start if column - start < end - column else end
            self.selection = Selection(at, at)
        self.post_message(self.Edited(self.text))

    def get_cursor_left_location(self) -> Location:
        row, column = self.cursor_location
        if column == 0:
            return super().get_cursor_left_location()
        return self._out_of_chip((row, previous_boundary(self.document[row], column)), 0)

    def get_cursor_right_location(self) -> Location:
        row, column = self.cursor_location
        line = self.document[row]
        if column >= len(line):
            return super().get_cursor_right_location()
        return self._out_of_chip((row, next_boundary(line, column)), 1)

    def get_cursor_word_left_location(self) -> Location:
        return self._out_of_chip(super().get_cursor_word_left_location(), 0)

    def get_cursor_word_right_location(self) -> Location:
        return self._out_of_chip(super().get_cursor_word_right_location(), 1)

    def action_delete_word_right(self) -> None:
        row, column = self.cursor_location
        span = self.chips.touching(self.document[row], column) if self.selection.is_empty else None
        if span is not None and span[0] == column:
            self._delete_via_keyboard((row, span[0]), (row, span[1]))
        else:
            super().action_delete_word_right()

    def _out_of_chip(self, location: Location, side: int) -> Location:
        row, column = location
        span = self.chips.around(self.document[row], column)
        return (row, span[side]) if span is not None else location

"""A page of text to read: doctor's report, the log."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from engine.chat.terminal_safe import clean


class TextScreen(ModalScreen[None]):
    """Read only; the text may come later by `show`."""

    DEFAULT_CSS = """
    TextScreen { align: center middle; background: $background 60%; }
    TextScreen > VerticalScroll {
        width: 116; max-width: 96%; height: 90%; padding: 0 1; background: $surface; border: round $primary;
    }
    """

    def __init__(self, heading: str, text: str, *, at_end: bool = False) -> None:
        super().__init__()
        self._heading = heading
        self.text = text
        self._at_end = at_end

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self._heading
            box.border_subtitle = "↑ ↓ PgUp PgDn · Esc leaves"
            yield Static(Content(clean(self.text)), id="page")

    def on_mount(self) -> None:
        box = self.query_one(VerticalScroll)
        box.focus()
        if self._at_end:
            self.call_after_refresh(box.scroll_end, animate=False)

    def show(self, text: str) -> None:
        self.text = text
        if self.is_attached:
            self.query_one("#page", Static).update(Content(clean(text)))

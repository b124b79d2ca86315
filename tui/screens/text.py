"""A page of text to read: doctor's report, the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from engine.chat.terminal_safe import clean
from tui.screens.overlay import Overlay

log = logging.getLogger("dspark.tui")


class TextScreen(Overlay[None]):
    """Read only."""

    DEFAULT_CSS = """
    TextScreen { align: center middle; background: $background 60%; }
    TextScreen > VerticalScroll {
        width: 116; max-width: 96%; height: 90%; padding: 0 1; background: $surface; border: round $primary;
    }
    """

    def __init__(self, heading: str, text: str, make: Callable[[], str] | None = None, *, at_end: bool = False) -> None:
        """make: brings the text on a worker thread; `text` stands there meanwhile."""
        super().__init__()
        self._make = make
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
        if self._make is not None:
            self._bring(self._make)

    @work(thread=True, group="text", exit_on_error=False)
    def _bring(self, make: Callable[[], str]) -> None:
        try:
            text = make()
        except Exception as error:  # a broken machine is what it is for: the screen says it as a sentence
            log.exception("the text for %s could not be made", self._heading)
            text = f"The examination failed: {error}"
        self.call_later(self.show, text)

    def show(self, text: str) -> None:
        self.text = text
        if self.is_attached:
            self.query_one("#page", Static).update(Content(clean(text)))

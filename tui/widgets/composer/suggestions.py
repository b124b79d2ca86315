"""The lines above the message: what it could become, or what waits to be sent."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from engine.chat.terminal_safe import clean, one_line
from tui.commands.completion import Candidate

ROWS = 8
LABEL = 34


class Suggestions(Static):
    """A short list with one marked line; hidden when there is nothing to say."""

    DEFAULT_CSS = """
    Suggestions {
        display: none; height: auto; max-height: 8; padding: 0 2; color: $foreground 80%;
        &.-on { display: block; }
    }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.items: Sequence[Candidate] = ()
        self.at: int | None = None
        """The marked line; None while nobody chose one."""
        self._waiting = ""

    @property
    def open(self) -> bool:
        return bool(self.items)

    @property
    def chosen(self) -> Candidate | None:
        """What Enter takes."""
        if self.at is not None:
            return self.items[self.at]
        return self.items[0] if self.items and self.items[0].first else None

    def offer(self, items: Sequence[Candidate]) -> None:
        """Show these; the mark stays on a line that is still there."""
        kept = self.items[self.at].text if self.at is not None and self.items else None
        self.items = items
        self.at = next((i for i, item in enumerate(items) if item.text == kept), None) if kept else None
        self._draw()

    def wait(self, text: str | None) -> None:
        """Show what waits to be sent, while nothing is offered."""
        self._waiting = clean(text) if text else ""
        self._draw()

    def move(self, by: int) -> None:
        start = -1 if self.at is None and by > 0 else 0 if self.at is None else self.at
        self.at = (start + by) % len(self.items)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.set_class(bool(self.items or self._waiting), "-on")
        width = max(10, self.app.size.width - 4)
        if self.items:
            at = self.at or 0
            first = max(0, min(at - ROWS // 2, len(self.items) - ROWS))
            last = first + ROWS
            left = len(self.items) - last + 1
            if left > 1:  # the last row says that there is more
                last -= 1
            rows = [self._row(item, first + i) for i, item in enumerate(self.items[first:last])]
            if left > 1:
                rows.append(Content.styled(f"… {left} more: ↓, or type on", "$faint"))
            self.update(Content("\n").join(row.truncate(width, ellipsis=True) for row in rows))
        elif self._waiting:
            lines = self._waiting.split("\n")
            more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
            text = Content.assemble(("queued: ", "dim"), (lines[0], "dim"))
            hint = Content.styled(f"{more}   ↑ takes it back", "$faint")
            room = max(10, width - hint.cell_length)
            self.update(Content.assemble(text.truncate(room, ellipsis=True), hint).truncate(width, ellipsis=True))

    def _row(self, item: Candidate, index: int) -> Content:
        marked = index == self.at or (self.at is None and index == 0 and item.first)
        label = Content(one_line(item.label))
        label = Content.assemble(label, " " * max(1, LABEL - label.cell_length)) if item.note else label
        row = Content.assemble(label.stylize("bold"), (one_line(item.note), "$faint"))
        return row.stylize("reverse") if marked else row

"""The panels folded into one row, for windows too narrow for them."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tui.conversation.stats import Tally, spark, speed_up
from tui.widgets.ribbon import ribbon


def status_row(turn: Tally, session: Tally, cache: str, width: int) -> Content:
    """Acceptance, speed, cache and the ribbon, as far as they fit."""
    parts: list[Content] = []
    if turn.acceptance is not None:
        parts.append(Content(f"acc {turn.acceptance:.2f} {spark(turn.rates, 16, 1.0)}"))
    if turn.rate is not None:
        gain = speed_up(turn, session)
        parts.append(Content(f"{turn.rate:.0f} t/s" + (f" {gain:.1f}×" if gain else "")))
    if cache:
        parts.append(Content(f"cache {cache}"))
    row = Content("  ").join(parts)
    room = width - row.cell_length - 2
    if room > 8 and turn.ticks:
        row = Content.assemble(row, "  ", ribbon(list(turn.ticks), room))
    return row.truncate(width, ellipsis=True)


class StatusRow(Static):
    """Draws again when it appears or its width changes."""

    DEFAULT_CSS = """
    StatusRow { height: 1; padding: 0 1; color: $foreground 80%; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._last = Tally(), Tally(), ""

    def show(self, turn: Tally, session: Tally, cache: str) -> None:
        self._last = turn, session, cache
        self.on_resize()

    def on_resize(self) -> None:
        if self.size.width:
            self.update(status_row(*self._last, self.size.width), layout=False)

"""A panel over the whole screen: its text as it is in the side bar, and a chart of the same figures below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tui.screens.overlay import Overlay
from tui.widgets.panels.base import Figures, Panel
from tui.widgets.side_bar import rows


class ChartScreen(Overlay[None]):
    """Steps through the panels; `show` draws new figures."""

    DEFAULT_CSS = """
    ChartScreen { background: $background; }
    ChartScreen > #tabs { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    ChartScreen > VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    ChartScreen > #hint { height: 1; padding: 0 1; color: $faint; &:ansi { text-style: dim; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,shift+tab", "step(-1)", show=False, priority=True),
        Binding("right,tab", "step(1)", show=False, priority=True),
    ]

    def __init__(self, panels: Sequence[Panel], shown: str, figures: Figures) -> None:
        super().__init__()
        self._panels = panels
        self._figures = figures
        self.at = next((i for i, panel in enumerate(panels) if panel.id == shown), 0)

    def compose(self) -> ComposeResult:
        yield Static(id="tabs")
        with VerticalScroll(can_focus=True):
            yield Static(id="chart")
        yield Static(Content("← → another panel · Esc leaves"), id="hint")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    @property
    def panel(self) -> Panel:
        return self._panels[self.at]

    def action_step(self, by: int) -> None:
        self.at = (self.at + by) % len(self._panels)
        self.draw()

    def show(self, figures: Figures) -> None:
        """New figures, a few times a second while an answer streams."""
        self._figures = figures
        self.draw()

    def draw(self) -> None:
        area = next(iter(self.query(VerticalScroll)), None)
        if area is None:  # not composed yet
            return
        width, height = area.content_size.width - 1, area.content_size.height
        if width <= 0:
            return
        self.query_one("#tabs", Static).update(tabs(self._panels, self.at))
        self.query_one("#chart", Static).update(maximised(self.panel, self._figures, width, height))


def tabs(panels: Sequence[Panel], at: int) -> Content:
    parts = [(f" {panel.title} ", "reverse bold" if i == at else "") for i, panel in enumerate(panels)]
    return Content.assemble(*parts)


def maximised(panel: Panel, figures: Figures, width: int, height: int) -> Content:
    """The panel's own text, then its chart in the room that is left."""
    text = panel.draw(figures, width)
    if panel.chart is None:
        return text
    room = max(6, height - rows(text, width) - 1)
    chart = panel.chart(figures, width, room)
    over = rows(chart, width) - room
    if over > 0:  # words wrapped
        chart = panel.chart(figures, width, max(6, room - over))
    return Content("\n\n").join([text, chart])

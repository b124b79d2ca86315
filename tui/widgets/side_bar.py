"""The column of panels. Redrawn at most four times a second, and only where the text changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from tui.widgets.panels import PANELS
from tui.widgets.panels.base import Figures, Panel

MODES = ("all", "compact", "off")


class PanelView(Static, can_focus=True):
    """One panel with its title. Enter or a click makes it large."""

    DEFAULT_CSS = """
    PanelView { height: auto; padding: 0 1; margin-bottom: 1; &:focus { background: $panel; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", show=False)]

    class Chosen(Message):
        """To be shown over the whole screen."""

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    def __init__(self, panel: Panel) -> None:
        super().__init__(id=f"panel-{panel.id}")
        self.panel = panel
        self._shown = Content("")

    def action_choose(self) -> None:
        self.post_message(self.Chosen(self.panel.id))

    def on_click(self) -> None:
        if not self.screen.get_selected_text():  # the end of marking text is a click, too
            self.action_choose()

    def forget(self) -> None:
        """Draw anew at the next occasion."""
        self._shown = Content("")

    def show(self, figures: Figures) -> None:
        width = self.size.width
        if width <= 0:
            return
        body = self.panel.draw(figures, width)
        text = Content.assemble(
            (self.panel.title.upper(), "bold $secondary"), (f"  {self.panel.hint}", "$faint"), "\n", body
        )
        if not self._shown.is_same(text):
            grown = rows(text, width) != rows(self._shown, width)
            self._shown = text
            self.update(text, layout=grown)


def rows(text: Content, width: int) -> int:
    """How many rows a text takes, about: only whether it changed matters."""
    return sum(max(1, -(-line.cell_length // width)) for line in text.split("\n"))


class SideBar(VerticalScroll, can_focus=False):
    """All panels, or the compact ones."""

    DEFAULT_CSS = """
    SideBar {
        width: 40;
        border-left: vkey $foreground 20%;
        padding-top: 1;
        scrollbar-size-vertical: 0;
        &:ansi { border-left: vkey ansi_default; }
    }
    """

    def __init__(self, panels: Sequence[Panel] = PANELS, id: str | None = None) -> None:
        super().__init__(id=id)
        self._panels = panels
        self.mode = MODES[0]

    def compose(self) -> ComposeResult:
        for panel in self._panels:
            yield PanelView(panel)

    def show(self, figures: Figures) -> None:
        if self.display:
            for view in self.query(PanelView):
                if view.display:
                    view.show(figures)

    def on_resize(self) -> None:
        for view in self.query(PanelView):
            view.forget()

    @property
    def next_mode(self) -> str:
        return MODES[(MODES.index(self.mode) + 1) % len(MODES)]

    def set_mode(self, mode: str) -> None:
        """`all`, `compact` or `off`; a word that is none of them is the first."""
        self.mode = mode if mode in MODES else MODES[0]
        self.set_class(self.mode == "off", "-off")
        self.styles.display = "none" if self.mode == "off" else None  # pyright: ignore[reportAttributeAccessIssue]
        for view in self.query(PanelView):
            view.display = self.mode != "compact" or view.panel.compact

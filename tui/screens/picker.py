"""A list to choose from, with a line to filter it: the base of the screens for chats, drafters and themes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from engine.chat.terminal_safe import one_line
from themes import Failure
from tui.engine_api import DrafterLike
from tui.screens.overlay import Overlay
from tui.widgets.hanging_indent import Entry, Hanging


@dataclass(frozen=True, slots=True)
class Item:
    """One line. `note` stands beside the name; a disabled item says there why."""

    id: str
    name: str
    note: str = ""
    disabled: bool = False
    current: bool | None = None
    """Marks the one in use; None in lists without one."""
    column: int = 0
    """Cells that the name takes at least, so that notes stand below each other."""


class PickScreen(Overlay[str | None]):
    """Returns the id of the chosen item, or None."""

    DEFAULT_CSS = """
    PickScreen { align: center middle; background: $background 60%; }
    PickScreen > Vertical {
        width: 90; max-width: 96%; height: 80%; padding: 0 1; background: $surface; border: round $primary;
    }
    PickScreen Input, PickScreen Input:focus { border: none; height: 1; margin: 1 0; background: $panel; padding: 0 1; }
    /* With a scroll bar that comes and goes the list would keep the heights of its rows at another width. */
    PickScreen OptionList { height: 1fr; border: none; background: $surface; scrollbar-gutter: stable; }
    PickScreen #hint { color: $faint; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("enter", "choose", show=False, priority=True),
    ]
    heading: ClassVar[str] = "Choose"
    hint: ClassVar[str] = "type to filter · Enter chooses · Esc leaves"

    def items(self, filter: str) -> Sequence[Item]:
        """What matches; newest or best first."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self.heading
            yield Input(placeholder="filter", id="filter")
            yield OptionList(id="list", markup=False)
            yield Static(Content(self.hint), id="hint")

    def on_mount(self) -> None:
        self.fill()

    @on(Input.Changed)
    def fill(self) -> None:
        """Show the items that match the filter."""
        options = self.query_one(OptionList)
        at = options.highlighted
        options.clear_options()
        for item in self.items(self.query_one(Input).value.strip()):
            mark = ("› " if item.current else "  ") if item.current is not None else ""
            name = Content.assemble(mark, one_line(item.name), "  ")
            note = Content.styled(one_line(item.note), "$faint")
            entry = Entry(name, note, len(mark) + item.column + 2 if item.column else 0)
            options.add_option(Option(Hanging([entry]), id=item.id, disabled=item.disabled))
        if options.option_count:
            options.highlighted = min(at or 0, options.option_count - 1)

    @property
    def current(self) -> str | None:
        """Id of the highlighted item."""
        options = self.query_one(OptionList)
        return options.get_option_at_index(options.highlighted).id if options.highlighted is not None else None

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if by > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def action_choose(self) -> None:
        if self.current is not None:
            self.dismiss(self.current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


class ListScreen(PickScreen):
    """A fixed list, filtered by the words typed."""

    def __init__(self, heading: str, items: Sequence[Item]) -> None:
        super().__init__()
        self.heading = heading  # type: ignore[misc]
        self._items = list(items)

    def items(self, filter: str) -> Sequence[Item]:
        words = filter.lower().split()
        return [i for i in self._items if all(w in f"{i.name} {i.note}".lower() for w in words)]


class DrafterScreen(ListScreen):
    """All drafters; one that cannot run says why."""

    def __init__(self, drafters: Sequence[DrafterLike], current: str) -> None:
        items = [
            Item(d.name, d.name, str(d.source) if d.available else d.reason, not d.available, d.name == current)
            for d in drafters
        ]
        super().__init__("Drafters", items)


class ThemeScreen(ListScreen):
    """All themes, and the files that hold none, with the reason."""

    def __init__(self, titles: Mapping[str, str], failures: Sequence[Failure], current: str) -> None:
        items = [Item(name, name, title, current=name == current, column=22) for name, title in titles.items()]
        items += [Item(f.path, f.path, f.reason, disabled=True) for f in failures]
        super().__init__("Themes", items)

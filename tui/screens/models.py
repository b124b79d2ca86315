"""All models: what is on this machine and what would be fetched, with size, memory and drafters before anything is.

Enter on a model that is here loads it. On one that is not, the first Enter asks the hub for its size, and the second
fetches it. Loads nothing itself: it returns a name.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static

from engine.chat.terminal_safe import one_line
from engine.diagnostics.model_preview import Choice, Outlook
from engine.errors import human_bytes
from tui.engine_api import ModelsLike, Progress
from tui.screens.picker import Item, PickScreen
from tui.widgets.task_row import task_text

PAUSE = 0.15
"""Seconds that a line must be highlighted before its files are looked at."""
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
COLUMN = 30
LISTING = "looking for models …"


class ModelsScreen(PickScreen):
    """Returns the name of the model to load."""

    DEFAULT_CSS = """
    ModelsScreen > Vertical { width: 110; height: 92%; }
    ModelsScreen #detail { height: auto; min-height: 5; max-height: 50%; border-top: solid $panel; padding-top: 1; }
    ModelsScreen #task { height: 1; display: none; }
    .-short ModelsScreen #detail { min-height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+u", "unload", show=False, priority=True),
        Binding("ctrl+x", "stop", show=False, priority=True),
    ]
    heading = "Models"
    hint = "type to filter, or owner/name · Enter loads · Ctrl+U unloads · Ctrl+X stops a download · Esc leaves"

    def __init__(
        self,
        models: ModelsLike,
        current: str,
        recent: Sequence[str] = (),
        facts: Callable[[], Content | None] = lambda: None,
        progress: Callable[[], Progress | None] = lambda: None,
        stop: Callable[[], object] = lambda: None,
    ) -> None:
        """facts: what is known of the loaded model. progress: of a load under way; stop: end it."""
        super().__init__()
        self._models = models
        self._current = current
        self._recent = list(recent)
        self._facts = facts
        self._progress = progress
        self._stop = stop
        self._choices: list[Choice] | None = None
        self._known: dict[str, Outlook] = {}
        self._asking = threading.Event()
        """Set when a question to the hub is no longer wanted."""
        self._timer: Timer | None = None
        self.unload = False
        """The user asked for the loaded model to go."""

    def on_mount(self) -> None:
        box = self.query_one("Vertical")
        box.mount(Static(id="detail"), Static(id="task"), before="#hint")
        self.query_one("#detail", Static).update(Content.styled(LISTING, "$faint"))
        self.set_interval(0.25, self._show_task)
        self._list()
        super().on_mount()

    def on_unmount(self) -> None:
        self._asking.set()

    # The list ---------------------------------------------------------------------------------------------------------

    @work(thread=True, exit_on_error=False)
    def _list(self) -> None:
        found = self._models.choices()
        self.app.call_from_thread(self._listed, found)

    def _listed(self, found: list[Choice]) -> None:
        order = {name: i for i, name in enumerate(self._recent)}
        self._choices = sorted(found, key=lambda c: (not c.installed, order.get(c.name, len(order))))
        self.fill()

    def items(self, filter: str) -> Sequence[Item]:
        if self._choices is None:
            return ()
        words = filter.lower().split()
        shown = [c for c in self._choices if all(w in f"{c.name} {c.title} {where(c)}".lower() for w in words)]
        column = min(COLUMN, max((len(c.name) for c in shown), default=0))
        out = [
            Item(c.name, c.name, note(c, c.name in self._recent), bool(c.trouble), c.name == self._current, column)
            for c in shown
        ]  # fmt: skip
        if REPO.fullmatch(filter) and all(filter.lower() != c.name.lower() for c in self._choices):
            out.append(Item(filter, filter, "from the hub", current=False))
        return out

    @on(Input.Changed)
    def _refilled(self) -> None:
        self._look_soon()

    @on(OptionList.OptionHighlighted)
    def _look_soon(self) -> None:
        self._asking.set()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PAUSE, self._look)

    # The detail -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        name = self.current
        if name is None:
            empty = LISTING if self._choices is None else "Nothing here matches; owner/name asks the hub."
            self._say(Content.styled(empty, "$faint"))
        elif name == self._current and (facts := self._facts()) is not None:
            self._say(facts)
        elif name in self._known:
            self._say(detail(self._known[name]))
        else:
            self._ask(name, False)

    def _ask(self, name: str, hub: bool) -> None:
        self._asking = threading.Event()
        if hub:
            self._say(Content.styled(f"asking how large {one_line(name)} is …", "$faint"))
        self._inquire(name, hub, self._asking)

    @work(thread=True, exit_on_error=False)
    def _inquire(self, name: str, hub: bool, stop: threading.Event) -> None:
        try:
            found = self._models.outlook(name, hub, stop.is_set)
        except Exception as error:  # the edge of looking: the screen says it as a sentence  # noqa: BLE001
            found = Outlook(name, False, trouble=str(error) or type(error).__name__)
        if not stop.is_set():
            self.app.call_from_thread(self._answered, name, found)

    def _answered(self, name: str, found: Outlook) -> None:
        self._known[name] = found
        if self.is_attached and self.current == name:
            self._say(detail(found))

    def _say(self, text: Content) -> None:
        self.query_one("#detail", Static).update(text)

    def _show_task(self) -> None:
        progress, row = self._progress(), self.query_one("#task", Static)
        row.display = progress is not None
        if progress is not None:
            row.update(task_text(progress, "Ctrl+X stops it", row.size.width or 80))

    # Choosing ---------------------------------------------------------------------------------------------------------

    def action_choose(self) -> None:
        name = self.current
        options = self.query_one(OptionList)
        if name is None or options.highlighted is None or options.get_option_at_index(options.highlighted).disabled:
            return
        found = self._known.get(name)
        choice = next((c for c in self._choices or () if c.name == name), None)
        here = choice is not None and choice.installed
        if found is not None and found.trouble and (here or found.fetch is not None):
            self.app.bell()
        elif here or (found is not None and found.fetch is not None):
            self.dismiss(name)
        else:
            self._ask(name, True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose()

    def action_unload(self) -> None:
        self.unload = True
        self.dismiss(None)

    def action_stop(self) -> None:
        self._stop()


def where(choice: Choice) -> str:
    if choice.missing:
        return f"interrupted, {choice.missing} files missing"
    return "" if choice.installed else "to fetch"


def note(choice: Choice, recent: bool) -> str:
    """Beside the name: size, where it is, what drafts for it, why it is no choice."""
    parts = [choice.title] if choice.title and choice.title.lower() != choice.name.lower() else []
    if choice.installed:
        parts.append(human_bytes(choice.size))
    if there := where(choice):
        parts.append(there)
    if recent:
        parts.append("recent")
    learned = [name for name in choice.drafters if name != "lookup"]
    if learned:
        parts.append(", ".join(learned))
    if choice.trouble:
        parts.append(choice.trouble)
    return " · ".join(parts)


def detail(found: Outlook) -> Content:
    """Size, memory and drafters in words."""
    rows: list[Content] = []
    if found.trouble:
        rows.append(Content.styled(f"⚠ {one_line(found.trouble)}", "$error"))
    if found.fetch:
        rows.append(
            Content.assemble((f"{human_bytes(found.fetch)} to fetch", "bold"), "  Enter again fetches and loads")
        )
    elif not found.installed and not found.trouble:
        rows.append(Content.styled("Not on this machine. Enter asks the hub how large it is.", "$faint"))
    elif found.installed:
        rows.append(Content(f"{human_bytes(found.size)} on disk"))
    if found.memory:
        room = f" of {human_bytes(found.room)}" if found.room else ""
        text = f"memory {human_bytes(found.memory)}{room}: weights {human_bytes(found.weights)}"
        rows.append(Content(f"{text}, the rest for {found.context:,} tokens of context"))
    if found.note:
        rows.append(Content.styled(one_line(found.note), "$faint"))
    for drafter in found.drafters:
        mark, style = ("✓", "") if drafter.ready else ("–", "$faint")
        reason = f"  {one_line(drafter.reason)}" if drafter.reason else ""
        rows.append(Content.assemble((f"{mark} {one_line(drafter.name)}", style), (reason, "$faint")))
    return Content("\n").join(rows)

"""What the keys do: a mixin of the app, so that the flow of an answer stays readable on its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from textual.content import Content

from engine import paths
from engine.chat.terminal_safe import clean
from tui.chat import Turn
from tui.keys import KEYS
from tui.prefs import Prefs, Wishes, save
from tui.terminal_input import Wheel
from tui.widgets.answer_view import View

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller
    from tui.options import Options
    from tui.widgets.composer import Composer
    from tui.widgets.transcript import Transcript

    Base = App[int]
else:
    Base = object

TWICE = 1.5
"""Seconds in which a second Ctrl+C on nothing quits."""
VIEWS = (View.SOURCE, View.MARKDOWN, View.TRACE)
VIEW_NAMES = {
    View.SOURCE: "colours: source of each token",
    View.MARKDOWN: "colours: Markdown and syntax",
    View.TRACE: "raw trace: tokens and rounds",
}
BELOW = frozenset(key.action.partition("(")[0] for key in KEYS) - {"stop", "interrupt", "quit", ""}
"""Actions of the conversation, which rest while another screen lies over it."""
PANEL_MODES = ("all", "compact", "off")


class Actions(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        options: Options
        transcript: Transcript
        composer: Composer
        load_error: str
        known_themes: Any
        prefs: Prefs
        wishes: Wishes
        no_color: bool

        def copy_text(self, text: str) -> None: ...
        def start_loading(self) -> None: ...
        def close_completion(self) -> bool: ...
        def leave_blocks(self) -> bool: ...
        def give_back(self) -> None: ...
        def show_header(self) -> None: ...
        def show_figures(self) -> None: ...
        def show_pill(self) -> None: ...
        async def begin(self, turn: Turn) -> None: ...

    _quit_at = 0.0
    _panel_mode = 0

    # Stopping and leaving ---------------------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """Esc: leave what is open, else stop the answer."""
        if len(self.screen_stack) > 1:
            leave = getattr(self.screen, "action_dismiss_none", None) or self.screen.dismiss
            leave()
        elif self.composer.search is not None:
            self.composer.end_search(keep=False)
        elif self.close_completion() or self.leave_blocks():
            pass
        elif self.controller.cancel():
            self.give_back()
        else:
            self.screen.clear_selection()
            self.composer.focus()

    def action_interrupt(self) -> None:
        """Ctrl+C: copy, stop, clear, or quit at the second time."""
        selected = self.screen.get_selected_text() or self.composer.selected_text
        if selected:
            self.copy_text(selected)
            self.say("Copied.")
        elif self.controller.cancel():
            self.give_back()
        elif self.composer.search is not None:
            self.composer.end_search(keep=False)
        elif self.composer.text:
            self.composer.clear_sent()
        elif time.monotonic() - self._quit_at < TWICE:
            self.exit(0)
        else:
            self._quit_at = time.monotonic()
            self.say("Ctrl+C again quits.")

    # Looking ----------------------------------------------------------------------------------------------------------

    def action_view(self) -> None:
        view = VIEWS[(VIEWS.index(self.transcript.view) + 1) % len(VIEWS)]
        self.transcript.show(view)
        self.remember(view=str(view))
        self.say(VIEW_NAMES[view])

    def action_panels(self) -> None:
        self.set_panels(PANEL_MODES[(self._panel_mode + 1) % len(PANEL_MODES)])

    def set_panels(self, mode: str) -> None:
        """`all`, `compact` or `off`."""
        from tui.widgets.side_bar import SideBar

        self._panel_mode = PANEL_MODES.index(mode)
        self.remember(panels=mode)
        side = self.query_one(SideBar)
        side.set_class(mode == "off", "-off")
        side.styles.display = "none" if mode == "off" else None  # pyright: ignore[reportAttributeAccessIssue]
        side.set_compact(mode == "compact")
        self.call_after_refresh(self.show_figures)

    def action_thought(self) -> None:
        """Fold or unfold the reasoning of the last answer that has some."""
        for turn in reversed(self.controller.chat.turns):
            if turn.answer.thought_ranges:
                self.transcript.toggle_thought(turn)
                return
        self.say("No answer here has reasoning.")

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def on_wheel(self, event: Wheel) -> None:
        """A wheel that came as arrow keys."""
        if len(self.screen_stack) > 1:
            self.simulate_key(event.key)
        else:
            self.transcript.scroll_relative(y=-1 if event.key == "up" else 1, animate=False)

    def action_live(self) -> None:
        self.transcript.anchor()
        self.call_after_refresh(self.show_pill)

    # Drafters ---------------------------------------------------------------------------------------------------------

    def action_next_drafter(self) -> None:
        if self.controller.engine is None:
            self.say("The model is not loaded yet.", "warning")
            return
        name = self.controller.next_drafter()
        if name is None:
            off = [f"{d.name}: {d.reason}" for d in self.controller.drafters if not d.available and d.reason]
            self.say("There is no other drafter that can run. " + "; ".join(off), "warning")
            return
        when = " from the next round on" if self.controller.busy else ""
        self.say(f"Drafter {name}{when}.")
        self.show_header()
        self.show_figures()

    def drafter_trouble(self) -> str:
        """Why the current drafter does nothing, when it does nothing."""
        current = next((d for d in self.controller.drafters if d.name == self.controller.drafter), None)
        if current is not None and not current.available:
            return f"off: {current.reason or 'it cannot run'}"
        return ""

    # Again ------------------------------------------------------------------------------------------------------------

    async def action_retry(self) -> None:
        """After a failure: load again, or answer again."""
        if self.load_error:
            self.start_loading()
            return
        failed = self.controller.failed
        if failed is None or self.controller.busy or self.controller.engine is None:
            self.say("There is nothing to try again.")
            return
        self.transcript.drop(failed)
        await self.begin(self.controller.again(failed))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "retry":
            return bool(self.load_error) or self.controller.failed is not None
        # Over another screen only what leaves it, or the program, goes on working.
        return len(self.screen_stack) < 2 or action not in BELOW

    # Saying -----------------------------------------------------------------------------------------------------------

    def say(self, text: str, severity: Any = "information") -> None:
        """A short notice in the corner; foreign text in it stays text."""
        self.clear_notifications()
        self.notify(clean(text), severity=severity, timeout=3, markup=False)

    def ribbon_note(self) -> str:
        controller = self.controller
        if controller.engine is None:
            return "loading"
        if controller.busy and controller.turn is not None:
            return f"answering · {controller.turn.answer.tally.tokens} tok"
        return ""

    def restore_look(self) -> None:
        """As the app was left, and from now on remember changes."""
        if self.prefs.view in [str(v) for v in VIEWS]:
            self.transcript.view = View(self.prefs.view)
        if self.prefs.panels in PANEL_MODES[1:]:
            self.set_panels(self.prefs.panels)
        # After Ctrl+Z and fg the terminal is empty, and nothing but a drawing of everything would show it.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.theme_changed_signal.subscribe(self, lambda theme: self.remember(theme=theme.name))

    def remember(self, **choices: str) -> None:
        """Keep a choice for the next start."""
        for name, value in choices.items():
            setattr(self.prefs, name, value)
        if not self.no_color:  # a theme that was forced is no choice
            save(paths.state() / "app.json", self.prefs)

    async def report_oddities(self) -> None:
        """What of the user's files was not understood; in the conversation, since a corner forgets."""
        themes = [f"The theme {f.path} was left out: {f.reason}." for f in self.known_themes.failures]
        wanted = self.options.theme or self.prefs.theme
        if wanted and wanted not in self.available_themes:
            themes.append(f"There is no theme {wanted}; /theme lists them.")
        notes = [*self.controller.start.notes, *self.wishes.notes, *themes]
        if notes:
            self.transcript.tell(Content(clean("\n".join(notes))))

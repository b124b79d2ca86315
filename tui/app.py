"""The terminal app: layout, loading, and the flow from a message to an answer on the screen.

Nothing here imports MLX: the engine is loaded on a worker thread after the first frame. What the keys do beyond that is
in `actions`, what the slash commands do in `commands`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.driver import Driver
from textual.message import Message
from textual.widgets import Static

import themes
from engine import paths
from engine.types import Event, Failed, Finished, Tokens
from tui import crash, prefs, preview
from tui.actions import Actions
from tui.attaching import Attaching
from tui.bridge import Bridge
from tui.chat import Turn
from tui.chats import Chats
from tui.completing import Completing
from tui.controller import Controller
from tui.history import History
from tui.instruments import Instruments
from tui.keys import bindings
from tui.loading import Loading
from tui.options import Options
from tui.panels import Figures
from tui.panels.prefix import share
from tui.race import Races
from tui.reading import Reading
from tui.screen_commands import ScreenCommands
from tui.screens.main import MainScreen
from tui.terminal_input import driver as filtered
from tui.theme import ANSI, defaults, to_textual
from tui.widgets.attachments import Attachments
from tui.widgets.composer import Composer
from tui.widgets.header import ChatHeader, HeaderState
from tui.widgets.key_row import KeyRow
from tui.widgets.ribbon import Ribbon
from tui.widgets.side_bar import SideBar
from tui.widgets.status_row import StatusRow
from tui.widgets.suggest import Suggest
from tui.widgets.task_row import TaskRow
from tui.widgets.transcript import Transcript

log = logging.getLogger("dspark.tui")

FRAME = 1 / 30
"""Shortest time between two drawings of a stream."""
SLOWEST = 0.5
SHARE = 3
"""A drawing that took t is followed by at least SHARE × t without one."""
SCARCE = 48
"""The same where the model computes on the few cores that draw: what drawing takes, the answer is late by."""
FEW_CORES = 4
SWITCH = 0.001
"""Seconds after which a thread that draws lets the model's thread have the interpreter; Python's own 5 ms are a good
part of a small model's token."""
PANEL_EVERY = 0.25
PANEL_SCARCE = 1.0
"""Seconds between looks at the figures, and the same where cores are scarce."""


class ChatApp(Loading, Instruments, Races, Chats, ScreenCommands, Completing, Attaching, Reading, Actions, App[int]):
    """The app."""

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "dspark-chat"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]  # noqa: RUF012 (Textual's own way)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = True

    class EventsWaiting(Message):
        """The engine has said something; posted from its thread."""

    def __init__(self, options: Options, history: History | None = None) -> None:
        self.no_color = bool(os.environ.get("NO_COLOR"))
        self.known_themes = themes.load(paths.config() / "themes")
        self.wishes = prefs.wishes(paths.settings_file())
        super().__init__(ansi_color=True if self.no_color else None)
        self.options = options
        self.controller = Controller(options.config)
        self.controller.chat.system = options.config.system
        self.bridge = Bridge(lambda: self.post_message(self.EventsWaiting()))
        self.history = history or History()
        self._touched: dict[str, Turn] = {}
        self._panels_at = 0.0
        self._unseen = 0
        self._draining = False
        self._measured: tuple[str, Any] = ("", None)
        for theme in self.known_themes.themes.values():
            self.register_theme(to_textual(theme))
        self.prefs = prefs.load(paths.state() / "app.json")
        self.set_keymap(self.wishes.keys)
        self.crash_note = ""
        wanted = options.theme or self.prefs.theme or themes.DEFAULT
        self.theme = ANSI if self.no_color else wanted if wanted in self.available_themes else themes.DEFAULT

    def get_default_screen(self) -> MainScreen:
        return MainScreen(id="_default")

    def get_driver_class(self) -> type[Driver]:
        return filtered(super().get_driver_class(), self.wishes.mouse)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        theme = self.current_theme
        return defaults(self.known_themes, dark=theme.dark, ansi=theme.ansi, no_color=self.no_color)

    def _handle_exception(self, error: Exception) -> None:
        """A fault that nobody caught: leave the terminal in order, and a report instead of a trace."""
        if self.is_headless:
            super()._handle_exception(error)
            return
        if not self.crash_note:
            self.crash_note = crash.report(error, paths.state())
            log.critical("the app failed", exc_info=error)
        self._return_code = 1
        self._close_messages_no_wait()

    def compose(self) -> ComposeResult:
        yield ChatHeader(id="header")
        with Horizontal(id="body"):
            with Vertical(id="main"):
                yield Transcript(id="transcript")
                yield Static(id="pill")
            yield SideBar(id="side")
        yield StatusRow(id="status")
        yield Ribbon(id="ribbon")
        yield TaskRow(id="task")
        yield Suggest(id="suggest")
        yield Attachments(id="attachments")
        yield Composer(self.history, id="composer")
        yield KeyRow(show_command_palette=False)

    def on_unmount(self) -> None:
        self.close_store()

    async def on_mount(self) -> None:
        self.transcript = self.query_one(Transcript)
        self.composer = self.query_one(Composer)
        self.composer.map_keys(self.wishes.keys)
        self.begin_completing()
        self.composer.focus()
        self.transcript.tell(Content(""), "notice")
        await self.report_oddities()
        self.restore_look()
        self.show_header()
        await self.open_store()
        if self.options.prompt:
            self.controller.queued = self.options.prompt
        self.call_after_refresh(self.start_loading)

    # Sending ----------------------------------------------------------------------------------------------------------

    async def send(self, text: str) -> None:
        """Send, or queue while something else is under way."""
        controller = self.controller
        if controller.engine is None or controller.busy:
            controller.queued = f"{controller.queued}\n\n{text}" if controller.queued else text
            self.show_queue()
            if controller.engine is None:
                self.start_loading()
            return
        self.transcript.dismiss("notice")
        await self.begin(controller.begin(text))

    async def begin(self, turn: Turn) -> None:
        """Put a turn on the screen and have it answered."""
        self.name_pictures(turn)
        self.transcript.add(turn)
        self.turn_began(turn)
        self.show_header()
        self._submit(turn)

    @work(thread=True, group="submit", exit_on_error=False)
    def _submit(self, turn: Turn) -> None:
        self.controller.submit(turn, self.bridge.put)
        if turn.images:
            self.call_from_thread(self.transcript.show_images, turn)

    async def send_queued(self) -> None:
        text, self.controller.queued = self.controller.queued, None
        self.show_queue()
        if text:
            await self.send(text)

    # Receiving --------------------------------------------------------------------------------------------------------

    def on_chat_app_events_waiting(self) -> None:
        if not self._draining:
            self._draining = True
            self._drain()

    def _drain(self) -> None:
        """Take all that has come, draw once, and come back after a pause; stop when nothing came."""
        begun = time.thread_time()
        taken = 0
        for event in self.bridge.drain():
            self._take(event)
            taken += 1
        if taken:
            self.flush()
            self.call_after_refresh(self._pause, begun)
        else:
            self._draining = not self.bridge.sleep()
            if self._draining:
                self.call_later(self._drain)

    def _pause(self, begun: float) -> None:
        cost = time.thread_time() - begun
        self.set_timer(min(max(share_of(sys.modules) * cost, FRAME), SLOWEST), self._drain)

    def _take(self, event: Event) -> None:
        turn = self.controller.turn
        view = self.transcript.answer(turn) if turn is not None else None
        owner = self.controller.apply(event, view.feed if view is not None else None)
        if owner is None:
            return
        if view is not None:
            self._touched[owner.id] = owner
        if isinstance(event, Tokens) and not self.transcript.following:
            self._unseen += len(event.pieces)
        self.turn_progressed(owner, event)
        if isinstance(event, Finished | Failed):
            self._panels_at = 0.0
            self.call_later(self._turn_ended, owner)

    def flush(self) -> None:
        """Draw what changed."""
        for turn in self._touched.values():
            self.transcript.flush(turn)
        self._touched.clear()
        self.show_pill()
        now = time.monotonic()
        if now - self._panels_at >= (PANEL_SCARCE if share_of(sys.modules) == SCARCE else PANEL_EVERY):
            self._panels_at = now
            self.show_figures()

    async def _turn_ended(self, turn: Turn) -> None:
        self.turn_ended(turn)
        self.show_header()
        self.show_figures()
        self.refresh_bindings()
        if self.controller.queued and not turn.answer.error:
            await self.send_queued()

    # Showing ----------------------------------------------------------------------------------------------------------

    def show_header(self) -> None:
        controller = self.controller
        engine, last = controller.engine, controller.last
        self.query_one(ChatHeader).show(
            HeaderState(
                model=self.model_name,
                drafter=controller.drafter if engine else "…",
                source=controller.drafter_source,
                cap=f"k={last.cap}" if last.drafting and last.drafter == controller.drafter else "",
                trouble=self.drafter_trouble(),
                title=controller.chat.name if controller.chat.turns else "",
                used=controller.used,
                context=engine.spec.context if engine else 0,
            )
        )

    def figures(self) -> Figures:
        controller = self.controller
        engine: Any = controller.engine
        if not controller.busy or controller.drafter != self._measured[0]:  # prediction is not for every frame
            self._measured = controller.drafter, getattr(engine, "calibration", None)
        return Figures(
            turn=controller.last,
            session=controller.session,
            prefilled=controller.prefilled,
            drafters=tuple(controller.drafters),
            drafter=controller.drafter or "none",
            cache=getattr(engine, "cache_stats", None),
            calibration=self._measured[1],
            answers=tuple(turn.answer for turn in controller.chat.turns),
        )

    def show_figures(self) -> None:
        figures = self.figures()
        self.query_one(SideBar).show(figures)
        self.show_chart(figures)
        self.query_one(StatusRow).show(figures.turn, figures.session, share(figures))
        self.query_one(Ribbon).show(list(figures.turn.ticks), self.ribbon_note())
        self.show_header()

    def show_pill(self) -> None:
        pill = self.query_one("#pill", Static)
        if self.transcript.following:
            self._unseen = 0
        if pill.has_class("-on") or self._unseen:
            pill.set_class(self._unseen > 0, "-on")
        if self._unseen:
            pill.update(Content(f"↓ {self._unseen} new tokens · Ctrl+End"))

    def on_transcript_scrolled(self) -> None:
        if self._unseen and self.transcript.following:
            self.show_pill()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_figures)


def share_of(modules: Mapping[str, Any]) -> int:
    """How much longer than a drawing the pause after it must be. `modules`: those that are loaded; MLX is one of them
    once a model is."""
    scarce = "mlx.core" in modules and modules["engine.backend"].is_cpu() and (os.cpu_count() or 1) <= FEW_CORES
    return SCARCE if scarce else SHARE


def run(options: Options) -> int:
    """Run the app until the user leaves; the exit code."""
    from tui.stderr_guard import stderr_to

    if options.plain or os.environ.get("TERM", "") in ("", "dumb"):
        from tui.plain import run as run_plain

        return run_plain(options)
    preview.prepare()
    sys.setswitchinterval(SWITCH)
    crash.log_to(paths.state() / "dspark.log")
    app = ChatApp(options, History(paths.state() / "history.jsonl"))
    with stderr_to(paths.state() / "stderr.log"):
        code = app.run(mouse=app.wishes.mouse == "on")
    app.close_store()
    engine = app.controller.engine
    if engine is not None:
        engine.close()
    if app.crash_note:
        sys.stderr.write(app.crash_note + "\n")
    return app.return_code or code or 0

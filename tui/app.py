"""The terminal app: its themes, its terminal, and what is there once; all else is the chat screen's.

Nothing here imports MLX: the engine is loaded on a worker thread after the first frame.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver

import themes
from engine import paths
from tui.conversation.input_history import History
from tui.conversation.library import ChatLibrary
from tui.conversation.session import ChatSession
from tui.keys import app_bindings
from tui.options import Options
from tui.screens.chat import ChatScreen
from tui.screens.chat_host import ChatHost
from tui.screens.services import Services
from tui.settings import preferences
from tui.settings.preferences import Preferences
from tui.terminal import clipboard, crash, image_protocol
from tui.terminal.input_filter import Wheel
from tui.terminal.input_filter import driver as filtered
from tui.theme import ANSI, defaults, to_textual

log = logging.getLogger("dspark.tui")

SWITCH = 0.001
"""Seconds after which a thread that draws lets the model's thread have the interpreter; Python's own 5 ms are a good
part of a small model's token."""
TWICE = 1.5
"""Seconds in which a second Ctrl+C on nothing quits."""


class ChatApp(App[int]):
    """Gives its screen what it needs, and gets the terminal back in order."""

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "dspark-chat"
    BINDINGS: ClassVar[list[BindingType]] = [*app_bindings()]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]  # noqa: RUF012 (Textual's own way)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = False  # the chat screen has one, with the slash commands

    def __init__(self, options: Options, history: History | None = None) -> None:
        self.no_color = bool(os.environ.get("NO_COLOR"))
        self.wishes = preferences.wishes(paths.settings_file())
        self._themes = themes.load(paths.config() / "themes")
        super().__init__(ansi_color=True if self.no_color else None)
        kept = Preferences(paths.state() / "app.json", write=not self.no_color)
        self.session = ChatSession(options.config)
        self.session.chat.system = options.config.system
        self.library = ChatLibrary(self.session)
        self.services = Services(
            options, self.session, self.library, history or History(), kept, self.wishes, self._themes,
            self.no_color,
        )  # fmt: skip
        for theme in self._themes.themes.values():
            self.register_theme(to_textual(theme))
        self.set_keymap(self.wishes.keys)
        self.crash_note = ""
        self._quit_at = 0.0
        wanted = options.theme or kept.theme or themes.DEFAULT
        self.theme = ANSI if self.no_color else wanted if wanted in self.available_themes else themes.DEFAULT

    def get_default_screen(self) -> ChatScreen:
        self.main = ChatScreen(self.services)
        self.main.host = ChatHost(self.main)
        return self.main

    def get_driver_class(self) -> type[Driver]:
        return filtered(super().get_driver_class(), self.wishes.mouse)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        theme = self.current_theme
        return defaults(self._themes, dark=theme.dark, ansi=theme.ansi, no_color=self.no_color)

    def on_mount(self) -> None:
        # After Ctrl+Z and fg the terminal is empty, and nothing but a drawing of everything would show it.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.theme_changed_signal.subscribe(self, lambda theme: self.services.preferences.remember(theme=theme.name))

    def on_unmount(self) -> None:
        self.library.close()

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

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52 through the terminal, and by the desktop's tool where there is one; what the message cuts, too."""
        super().copy_to_clipboard(text)
        command = clipboard.tool()
        if command is not None:
            self.run_worker(lambda: clipboard.copy(text, command), thread=True, group="copy", exit_on_error=False)

    def on_wheel(self, event: Wheel) -> None:
        """A wheel that came as arrow keys."""
        if self.screen is self.main:
            self.main.transcript.scroll_relative(y=-1 if event.key == "up" else 1, animate=False)
        else:
            self.simulate_key(event.key)

    def action_interrupt(self) -> None:
        """Ctrl+C: copy, stop, clear, or quit at the second time."""
        main = self.main
        selected = self.screen.get_selected_text() or main.composer.selected_text
        if selected:
            self.copy_to_clipboard(selected)
            main.say("Copied.")
        elif main.stop_answer() or main.area.clear():
            pass
        elif time.monotonic() - self._quit_at < TWICE:
            self.exit(0)
        else:
            self._quit_at = time.monotonic()
            main.say("Ctrl+C again quits.")


def run(options: Options) -> int:
    """Run the app until the user leaves; the exit code."""
    image_protocol.prepare()
    sys.setswitchinterval(SWITCH)
    crash.log_to(paths.state() / "dspark.log")
    app = ChatApp(options, History(paths.state() / "history.jsonl"))
    with crash.stderr_to(paths.state() / "stderr.log"):
        code = app.run(mouse=app.wishes.mouse == "on")
    app.library.close()
    engine = app.session.engine
    if engine is not None:
        engine.close()
    if app.crash_note:
        sys.stderr.write(app.crash_note + "\n")
    return app.return_code or code or 0

"""The slash commands' view of the app: what they ask for, done on the chat screen and on screens that lie over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import SuspendNotSupported

from engine.drafters.registry import example
from engine.errors import UsageError
from themes import DEFAULT, Theme
from tui.commands.host import Result, ScreenHost
from tui.commands.reports import doctor_text, log_text
from tui.conversation.calibration_task import CalibrationTask
from tui.conversation.chat import Chat, Turn
from tui.conversation.explain import Explainer
from tui.conversation.images import mentioned
from tui.engine_api import Progress
from tui.markdown.document import Part
from tui.screens.charts import ChartScreen
from tui.screens.chat import ChatScreen
from tui.screens.chats import SessionsScreen
from tui.screens.help import HelpScreen
from tui.screens.image import PictureScreen
from tui.screens.inspector import InspectorScreen
from tui.screens.picker import DrafterScreen, ThemeScreen
from tui.screens.race import MOST, RaceScreen, Watch, default_arms, run_race, wanted
from tui.screens.settings import SettingsScreen
from tui.screens.text import TextScreen
from tui.settings import settings
from tui.terminal import external_editor
from tui.widgets.ribbon import Ribbon
from tui.widgets.side_bar import MODES, PANELS, PanelView
from tui.widgets.task_row import TaskRow
from tui.widgets.transcript.answer import View


class ChatHost:
    """Every method is a command's; a sentence says why it cannot be carried out, or what came of it."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._app = screen.app
        self._services = screen.services
        self.session, self.library = screen.session, screen.library
        self.calibration = CalibrationTask(self.session)
        self.racer = run_race
        self._charted = "acceptance"

    @property
    def full(self) -> ScreenHost:
        return self

    @property
    def look(self) -> Theme:
        known = self._services.themes.themes
        return known.get(self._app.theme) or known[DEFAULT]

    @property
    def recent(self) -> Sequence[str]:
        return self._screen.loader.recent

    @property
    def panels(self) -> Sequence[str]:
        return [panel.id for panel in PANELS]

    @property
    def themes(self) -> Mapping[str, str]:
        own = {name: theme.title for name, theme in self._services.themes.themes.items()}
        return own | {name: "" for name in sorted(self._app.available_themes) if name not in own}

    # The terminal and the desktop -------------------------------------------------------------------------------------

    def copy_text(self, text: str) -> None:
        self._app.copy_to_clipboard(text)

    async def edit_text(self, text: str) -> str | None:
        """In the user's editor, while the app gives the terminal away."""
        try:
            with self._app.suspend():
                return external_editor.edit(text)
        except (UsageError, SuspendNotSupported) as error:
            self._screen.say(str(error), "error")
            return None

    def leave(self) -> None:
        self._app.exit(0)

    # The chat ---------------------------------------------------------------------------------------------------------

    async def show_chat(self, chat: Chat) -> None:
        await self._screen.show_chat(chat)

    async def answer_again(self, text: str | None = None) -> Result:
        return self._screen.answer_again(text)

    def attach(self, path: Path) -> Result:
        return self._screen.area.attach(path)

    async def chats(self) -> Result:
        if self.library.store is None:
            return "Chats are not saved in this session."
        self.library.store.settle()
        self._screen.run_worker(self._choose_chat(SessionsScreen(self.library.store, self.session.chat.id)))
        return None

    async def _choose_chat(self, screen: SessionsScreen) -> None:
        chosen = await self._app.push_screen_wait(screen)
        if screen.deleted:
            self.library.deleted = screen.deleted[-1]
        if chosen is None:
            return
        if chosen != self.session.chat.id:
            found = self.library.load(chosen)
            if isinstance(found, str):
                self._screen.say(found, "error")
                return
            await self.show_chat(found)
        turn = self.session.chat.find(screen.words)
        if turn is not None:
            self._screen.transcript.reveal(turn)

    async def branch(self, words: str, turn: Turn | None = None) -> Result:
        found = self.library.branch(words, turn)
        if isinstance(found, str):
            return found
        await self.show_chat(found[0])
        return found[1]

    async def retry(self) -> Result:
        """After a failure: load again, or answer again."""
        if self._screen.loader.manager.error:
            self._screen.loader.start()
            return None
        failed = self.session.failed
        if failed is None or self.session.busy or self.session.engine is None:
            return "There is nothing to try again."
        return self._screen.answer_again(None, failed)

    async def turn(self, what: str, turn: Turn, part: Part | None) -> Result:
        """What the block cursor asks for."""
        match what:
            case "again":
                return self._screen.answer_again(None, turn)
            case "branch":
                return await self.branch("next", turn)
            case "inspect":
                answer = turn.answer
                start = answer.reply_ranges[0][0] if answer.thought_ranges and answer.reply_ranges else 0
                at = answer.span_at(start + part.start) if part is not None and answer.spans else None
                return self._inspect(turn, at)
            case _:
                return self._edit(turn)

    def _edit(self, turn: Turn) -> Result:
        """The message of the turn in the composer; sending it puts it in the place of that turn."""
        if self.session.busy:
            return "An answer is under way; Esc stops it."
        self._screen.transcript.unpoint()
        self._screen.area.edit(turn)
        return "Enter sends the edit as a new branch. Esc cancels."

    def inspect(self) -> Result:
        """The answer under the block cursor, else the last one."""
        pointed = self._screen.transcript.pointed
        turn = next((t for t in reversed(self.session.chat.turns) if t.answer.spans), None)
        if pointed is not None:
            self._screen.transcript.action_block_do("inspect")
            return None
        return self._inspect(turn) if turn is not None else "There is no answer to inspect yet."

    def _inspect(self, turn: Turn, index: int | None = None) -> Result:
        if not turn.answer.spans:
            return "This answer has no token records."
        decode = self._screen.transcript.decoder(turn.answer)
        self._app.push_screen(InspectorScreen(turn.answer, decode, Explainer(self.session, turn), index))
        return None

    def pictures(self) -> Result:
        """Those of the message being written, else of the last message that had some."""
        found = [*self.session.album.waiting, *mentioned(self._screen.composer.message)]
        turns = iter(reversed(self.session.chat.turns))
        while not found and (turn := next(turns, None)) is not None:
            found = mentioned(turn.user)
        if not found:
            return "There is no picture here; /image FILE or @FILE names one."
        self._app.push_screen(PictureScreen(found))
        return None

    # The look ---------------------------------------------------------------------------------------------------------

    def set_view(self, words: str) -> Result:
        if words not in [str(v) for v in View]:
            return f"/view {', '.join(View)}."
        self._screen.transcript.show(View(words))
        return None

    def set_panels(self, words: str) -> Result:
        if words not in MODES:
            return "/panels all, compact or off."
        self._screen.set_panels(words)
        return None

    def set_ribbon(self, words: str) -> Result:
        self._screen.query_one(Ribbon).letters = words == "letters"
        return None

    def set_theme(self, words: str) -> Result:
        if not words:
            self._screen.run_worker(self._choose_theme())
            return None
        if words not in self._app.available_themes:
            return f"There is no theme {words}; /theme lists them."
        self._app.theme = words
        return f"Theme {words}."

    async def _choose_theme(self) -> None:
        screen = ThemeScreen(self.themes, self._services.themes.failures, self._app.theme)
        chosen = await self._app.push_screen_wait(screen)
        if chosen is not None:
            self._app.theme = chosen

    # Models and drafters ----------------------------------------------------------------------------------------------

    async def model(self, words: str) -> Result:
        return await self._screen.loader.command(words)

    def drafters(self) -> Result:
        """All drafters; those that cannot run are grey and say why."""
        if not self.session.drafters:
            return "The model is not loaded yet."
        self._screen.run_worker(self._choose_drafter(DrafterScreen(self.session.drafters, self.session.drafter)))
        return None

    async def _choose_drafter(self, screen: DrafterScreen) -> None:
        chosen = await self._app.push_screen_wait(screen)
        if chosen is not None:
            self._screen.say(self.session.use(chosen) or f"Drafter {chosen}, from the next round on.")
            self._screen.show_figures()

    def next_drafter(self) -> Result:
        session = self.session
        if session.engine is None:
            return "The model is not loaded yet."
        name = session.next_drafter()
        if name is None:
            off = [f"{d.name}: {d.reason}" for d in session.drafters if not d.available and d.reason]
            return "There is no other drafter that can run. " + "; ".join(off)
        self._screen.show_figures()
        return f"Drafter {name}{' from the next round on' if session.busy else ''}."

    def race(self, words: str) -> Result:
        """`words`: drafters separated by commas, and how many tokens; both may be left out."""
        session, composer = self.session, self._screen.composer
        if session.engine is None:
            return "The model is not loaded yet."
        if session.busy:
            return "Stop the current answer (Esc) before starting a race."
        text = "" if composer.text.startswith("/") else composer.text.strip()
        if not text and not session.chat.turns:
            return "Write something first: the race is about what is in the message line, or the last message."
        names, tokens = wanted(words, default_arms(session))
        if not 2 <= len(names) <= MOST:
            return f"A race needs two to {MOST} drafters, such as /race {example()}."

        def run(progress: Callable[[str, float], None], watch: Watch, stop: Callable[[], bool]) -> Any:
            request = session.question(text)
            request = replace(request, max_tokens=min(request.max_tokens, tokens), remember=False)
            return self.racer(session.engine, request, names, progress, watch, stop)

        self._app.push_screen(RaceScreen(text or session.chat.turns[-1].user, names, run))
        return None

    # What the program shows of itself ---------------------------------------------------------------------------------

    def help(self) -> Result:
        self._app.push_screen(HelpScreen(self._services.wishes.keys))
        return None

    def settings(self) -> Result:
        """All settings, with who decided them."""
        session = self.session
        screen = SettingsScreen(
            lambda: settings.rows(session.effective, session.chat.system),
            lambda name, value, for_session: settings.put(session, name, value, for_session),
        )
        self._app.push_screen(screen, lambda _: self._screen.show_figures())
        return None

    def chart(self, words: str) -> Result:
        """A panel by its name, else the one that has the focus, else the one looked at last."""
        focused = self._screen.focused
        name = words or (focused.panel.id if isinstance(focused, PanelView) else self._charted)
        found = next((id for id in self.panels if id.startswith(name.lower())), None)
        if found is None:
            return f"There is no panel {name}; there are {', '.join(self.panels)}."
        screen = ChartScreen(PANELS, found, self._screen.figures())

        def left(_: None) -> None:
            self._charted = screen.panel.id

        self._app.push_screen(screen, left)
        return None

    def doctor(self) -> Result:
        """What `dspark-chat doctor` prints, examined now."""
        session = self.session
        screen = TextScreen("Doctor", "Examining this machine …", lambda: doctor_text(session.config, session.engine))
        self._app.push_screen(screen)
        return None

    def log(self) -> Result:
        self._app.push_screen(TextScreen("Log", log_text(), at_end=True))
        return None

    def calibrate(self, words: str) -> Result:
        """Measure this machine again, or stop doing so."""
        if words == "stop":
            return self.calibration.stop()
        if self._screen.loader.manager.job is not None:
            return "The model is not loaded, or busy; try again in a moment."
        said = self.calibration.begin()
        if said is None:
            self._show_measuring("measuring this machine", 0.0)
            self._screen.run_worker(self._measure, thread=True, group="measure", exit_on_error=False)
        return said

    def _measure(self) -> None:
        app = self._app

        def progress(what: str, done: float) -> None:
            self._screen.call_later(self._show_measuring, what, done)

        trouble = self.calibration.measure(progress, lambda: app._exit)  # pyright: ignore[reportPrivateUsage]
        app.call_from_thread(self._measured, trouble)

    def _show_measuring(self, what: str, done: float) -> None:
        if self.calibration.running:
            progress = Progress(f"calibrating: {what}", round(1000 * done), 1000)
            self._screen.query_one(TaskRow).show(progress, "/calibrate stop stops it")

    def _measured(self, trouble: str) -> None:
        found = self.calibration.end()
        self._screen.query_one(TaskRow).show(None)
        self._screen.show_figures()
        self._screen.say(trouble or found)

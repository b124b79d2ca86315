"""Slash commands and keys that open something on the screen. A mixin of the app."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import SuspendNotSupported
from textual.content import Content

from engine.chat.terminal_safe import clean
from engine.errors import UsageError
from themes import DEFAULT, Theme
from tui import clipboard, commands, editor, settings
from tui.pictures import mentioned
from tui.screens.help import HelpScreen
from tui.screens.pick import Item, ListScreen
from tui.screens.picture import PictureScreen
from tui.screens.sessions import SessionsScreen
from tui.screens.settings import SettingsScreen
from tui.widgets.answer_view import View
from tui.widgets.composer import Composer
from tui.widgets.ribbon import Ribbon

log = logging.getLogger("dspark.tui")

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller
    from tui.prefs import Wishes
    from tui.store import Store
    from tui.widgets.transcript import Transcript

    Base = App[int]
else:
    Base = object


class ScreenCommands(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        store: Store | None
        transcript: Transcript
        composer: Composer
        deleted_chat: str
        known_themes: Any
        wishes: Wishes
        no_color: bool

        def say(self, text: str, severity: Any = "information") -> None: ...
        def show_header(self) -> None: ...
        def show_figures(self) -> None: ...
        def set_panels(self, mode: str) -> None: ...
        def pictures_changed(self) -> None: ...
        async def action_retry(self) -> None: ...
        async def new_chat(self) -> None: ...
        async def open_chat(self, id: str, head: str | None = None) -> None: ...
        def action_inspect(self) -> None: ...
        async def step_branch(self, words: str) -> str | None: ...

    # Commands ---------------------------------------------------------------------------------------------------------

    async def run_command(self, text: str) -> bool:
        """Carry out `text` when it is a command; whether it was one."""
        if commands.parse(text) is None:
            return False
        host: Any = self
        result = await commands.run(host, text)
        if result:
            await self.tell(result)
        self.pictures_changed()
        self.show_header()
        self.show_figures()
        self.pictures_changed()
        return True

    async def tell(self, text: str) -> None:
        """A short answer in the corner, a longer one in the conversation."""
        if "\n" not in text and len(text) < 120:
            self.say(text)
        else:
            self.transcript.tell(Content(clean(text)))

    async def screen_command(self, name: str, words: str) -> str | None:
        """The commands that need a screen."""
        match name:
            case "help":
                self.action_help()
            case "sessions":
                self.action_sessions()
            case "image":
                return self.show_pictures()
            case "settings":
                self.action_settings()
            case "retry":
                await self.action_retry()
            case "branch":
                return await self.step_branch(words)
            case "inspect":
                self.action_inspect()
            case "view":
                return self._view(words)
            case "panels":
                if words not in ("all", "compact", "off"):
                    return "/panels all, compact or off."
                self.set_panels(words)
            case "ribbon":
                self.query_one(Ribbon).letters = words == "letters"
                self.show_figures()
            case "theme":
                return self._theme(words)
            case _:
                return f"/{name} is not available here."
        return None

    def _view(self, words: str) -> str | None:
        if words not in [str(v) for v in View]:
            return f"/view {', '.join(View)}."
        self.transcript.show(View(words))
        return None

    def _theme(self, words: str) -> str | None:
        if words:
            if words not in self.available_themes:
                return f"There is no theme {words}; /theme lists them."
            self.theme = words
            return f"Theme {words}."
        own = self.known_themes.themes
        names = [*own, *(name for name in sorted(self.available_themes) if name not in own)]
        titles = {name: theme.title for name, theme in own.items()}
        items = [Item(name, name, titles.get(name, ""), current=name == self.theme, column=22) for name in names]
        items += [Item(f.path, f.path, f.reason, disabled=True) for f in self.known_themes.failures]
        self._pick_theme(items)
        return None

    @work
    async def _pick_theme(self, items: list[Item]) -> None:
        chosen = await self.push_screen_wait(ListScreen("Themes", items))
        if chosen is not None:
            self.theme = chosen

    def show_pictures(self) -> str | None:
        """Those of the message being written, else of the last message that had some."""
        paths = [*self.controller.album.waiting, *mentioned(self.composer.message)]
        turns = iter(reversed(self.controller.chat.turns))
        while not paths and (turn := next(turns, None)) is not None:
            paths = mentioned(turn.user)
        if not paths:
            return "There is no picture here; /image FILE or @FILE names one."
        self.push_screen(PictureScreen(paths))
        return None

    def on_attachments_clicked(self) -> None:
        self.show_pictures()

    # Screens ----------------------------------------------------------------------------------------------------------

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.wishes.keys))

    def on_composer_help_wanted(self) -> None:
        self.action_help()

    @work
    async def action_sessions(self) -> None:
        if self.store is None:
            self.say("Chats are not saved in this session.", "warning")
            return
        self.store.settle()
        screen = SessionsScreen(self.store, self.controller.chat.id)
        chosen = await self.push_screen_wait(screen)
        if screen.deleted:
            self.deleted_chat = screen.deleted[-1]
        if chosen is not None and chosen != self.controller.chat.id:
            await self.open_chat(chosen)
        turn = self.controller.chat.find(screen.words) if chosen is not None else None
        if turn is not None:
            self.transcript.reveal(turn)

    async def action_new_chat(self) -> None:
        await self.new_chat()
        self.composer.focus()

    @work
    async def action_drafters(self) -> None:
        """All drafters; those that cannot run are grey and say why."""
        current = self.controller.drafter
        items = [
            Item(d.name, d.name, str(d.source) if d.available else d.reason, not d.available, d.name == current)
            for d in self.controller.drafters
        ]  # fmt: skip
        if not items:
            self.say("The model is not loaded yet.", "warning")
            return
        chosen = await self.push_screen_wait(ListScreen("Drafters", items))
        if chosen is not None:
            self.say(self.controller.use(chosen) or f"Drafter {chosen}, from the next round on.")
            self.show_header()
            self.show_figures()

    def action_settings(self) -> None:
        """All settings, with who decided them."""
        controller = self.controller
        screen = SettingsScreen(
            lambda: settings.rows(controller.effective, controller.chat.system),
            lambda name, value, session: settings.put(controller, name, value, session),
        )
        self.push_screen(screen, lambda _: self.show_header())

    # The host of the commands -----------------------------------------------------------------------------------------

    @property
    def look(self) -> Theme:
        return self.known_themes.themes.get(self.theme) or self.known_themes.themes[DEFAULT]

    def copy_text(self, text: str) -> None:
        self.copy_to_clipboard(text)

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52 through the terminal, and by the desktop's tool where there is one; what the message cuts, too."""
        super().copy_to_clipboard(text)
        command = clipboard.tool()
        if command is not None:
            self.run_worker(lambda: clipboard.copy(text, command), thread=True, group="copy", exit_on_error=False)

    async def edit_text(self, text: str) -> str | None:
        """In the user's editor, while the app gives the terminal away."""
        try:
            with self.suspend():
                return editor.edit(text)
        except (UsageError, SuspendNotSupported) as error:
            self.say(str(error), "error")
            return None

    async def action_editor(self) -> None:
        """Ctrl+G: the message in $VISUAL or $EDITOR."""
        text = await self.edit_text(self.composer.message)
        if text is not None:
            self.composer.write(text)

    async def action_copy_answer(self) -> None:
        await self.run_command("/copy")

    def leave(self) -> None:
        self.exit(0)

    def action_search_history(self) -> None:
        """Ctrl+R: search what was sent, and go on to the next older find."""
        self.composer.focus()
        self.composer.search_older()

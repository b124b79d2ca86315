"""While a message is written: completion, the picker of files, sending, the message that waits. A mixin of the app."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import SystemCommand
from textual.screen import Screen

from engine import paths
from engine.errors import UsageError
from tui import clipboard, commands, mentions
from tui.completion import Candidate, Project, candidates, wants_files
from tui.widgets.composer import Composer
from tui.widgets.suggest import Suggest

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller

    Base = App[int]
else:
    Base = object


class Completing(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        composer: Composer

        def say(self, text: str, severity: Any = "information") -> None: ...
        def attach(self, path: Path) -> str | None: ...
        def pictures_changed(self) -> None: ...
        async def run_command(self, text: str) -> bool: ...
        async def send(self, text: str) -> None: ...
        def picture_trouble(self, text: str) -> str: ...
        async def send_edited(self, text: str) -> bool: ...

    _project: Project | None = None
    _looking = False

    @property
    def suggest(self) -> Suggest:
        return self.query_one(Suggest)

    @property
    def project(self) -> Project:
        """The files around; made when the first @ is written."""
        if self._project is None:
            self._project = Project()
        return self._project

    def begin_completing(self) -> None:
        """Connect the message with what is offered."""
        self.composer.choose = self._choose_by
        self.composer.take_back = self.take_back

    # Offering ---------------------------------------------------------------------------------------------------------

    def on_composer_edited(self, event: Composer.Edited) -> None:
        self.offer()

    def offer(self) -> None:
        """Show what the text at the cursor could become."""
        before = self.composer.before
        if before is None:
            self.suggest.offer(())
            return
        if wants_files(before) and self.project.stale and not self._looking:
            self._looking = True
            self._look()
        self.suggest.offer(candidates(self, before, self.project))

    @work(thread=True, group="files", exit_on_error=False)
    def _look(self) -> None:
        self.project.look()
        self._looking = False
        self.call_from_thread(self.offer)

    # Choosing ---------------------------------------------------------------------------------------------------------

    def _choose_by(self, key: str) -> bool:
        """↑ ↓ Tab Enter while the list is open; whether it took the key. Enter is for what is marked only."""
        suggest = self.suggest
        if not suggest.open or (key == "enter" and suggest.chosen is None):
            return False
        if key in ("up", "down"):
            suggest.move(-1 if key == "up" else 1)
        else:
            self._choose(suggest.chosen or suggest.items[0], send=key == "enter")
        return True

    def _choose(self, item: Candidate, send: bool) -> None:
        self.suggest.at = None
        self.composer.complete(item.start, item.text)
        if send and item.sends:
            self.composer.action_send()

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """The palette: the same commands; one that takes words is begun in the message, where they are completed."""
        for command in commands.COMMANDS:
            usage = f"/{command.name} {command.words}".rstrip()
            yield SystemCommand(usage, command.help, partial(self._from_palette, command))

    async def _from_palette(self, command: commands.Command) -> None:
        if not command.words:
            await self.run_command(f"/{command.name}")
            return
        self.composer.focus()
        self.composer.load_text("")
        self.composer.complete(0, f"/{command.name} ")

    def close_completion(self) -> bool:
        """Esc: put the list away until the text changes; whether there was one."""
        was = self.suggest.open
        self.suggest.offer(())
        return was

    # Pasting ----------------------------------------------------------------------------------------------------------

    def on_composer_paste_wanted(self) -> None:
        self.action_paste()

    @work(thread=True, group="paste", exit_on_error=False)
    def action_paste(self) -> None:
        """Ctrl+V, Alt+V: a picture goes with the message, text into it."""
        try:
            path = clipboard.keep_picture(paths.data() / "pasted")
        except UsageError as error:
            text = clipboard.text() or self.app.clipboard
            if text:
                self.call_from_thread(self.composer.paste, text)
            else:
                self.call_from_thread(self.say, str(error), "warning")
        else:
            self.call_from_thread(self._attach_pasted, path)

    def _attach_pasted(self, path: Path) -> None:
        trouble = self.attach(path)
        self.pictures_changed()
        if trouble:
            self.say(trouble, "warning")

    # Sending ----------------------------------------------------------------------------------------------------------

    async def on_composer_submitted(self, event: Composer.Submitted) -> None:
        text = event.text
        if commands.parse(text) is None:
            try:
                if trouble := self.picture_trouble(text):
                    raise UsageError(trouble)
                text = mentions.expand(text)
            except UsageError as error:  # the message stays where it was written
                self.say(str(error), "warning")
                return
        self.composer.clear_sent()
        if await self.run_command(text):
            return
        text = text.removeprefix("/") if text.startswith("//") else text
        if not await self.send_edited(text):
            await self.send(text)

    # The message that waits -------------------------------------------------------------------------------------------

    def show_queue(self) -> None:
        self.suggest.wait(self.controller.queued)

    def take_back(self) -> str | None:
        """↑ on an empty message: what waits comes back to be changed, and waits no longer."""
        text, self.controller.queued = self.controller.queued, None
        self.show_queue()
        return text

    def give_back(self) -> None:
        """The answer was stopped: what waited for its end is not sent over the user's head."""
        text = self.take_back()
        if text:
            written = self.composer.message
            self.composer.write(f"{text}\n\n{written}" if written.strip() else text)

"""The app's chats: saved while they stream, opened, branched. A mixin of the app.

A store that cannot be opened is said once, and the chat goes on unsaved.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from textual.content import Content

from engine import paths
from engine.chat.terminal_safe import clean
from engine.errors import DsparkError
from engine.types import Event
from tui.chat import Chat, Status, Turn
from tui.store import Store

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller
    from tui.options import Options
    from tui.widgets.transcript import Transcript

    Base = App[int]
else:
    Base = object

log = logging.getLogger("dspark.tui")

SAVE_EVERY = 0.9
"""Seconds between writes of an answer that streams."""


class Chats(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        options: Options
        transcript: Transcript

        def say(self, text: str, severity: Any = "information") -> None: ...
        def show_header(self) -> None: ...
        def show_figures(self) -> None: ...
        async def begin(self, turn: Turn) -> None: ...

    store: Store | None = None
    deleted_chat = ""
    _saved_at = 0.0
    _complained = ""

    # Saving -----------------------------------------------------------------------------------------------------------

    async def open_store(self) -> None:
        """Open the file of chats, and the chat that the command line asked for."""
        try:
            self.store = Store(paths.data() / "chats.db")
        except (DsparkError, OSError) as error:
            log.warning("chats are not saved", exc_info=error)
            where = f"{error.strerror or error} ({error.filename})" if isinstance(error, OSError) else ""
            self._warn(f"Chats are not saved in this session: {where}." if where else str(error))
            return
        if self.store.note:
            self._warn(self.store.note)
        if self.options.continue_last or self.options.resume is not None:
            found = self.store.find(self.options.resume or "")
            if found is None:
                self.say(f"There is no chat whose id begins with {self.options.resume or 'anything'}.", "warning")
            else:
                await self.open_chat(found)

    def _warn(self, sentence: str) -> None:
        """In the conversation, since a corner forgets, and this costs what is written."""
        self.transcript.tell(Content(clean(f"⚠ {sentence}")))

    def close_store(self) -> None:
        if self.store is not None:
            turn = self.controller.turn
            if turn is not None:
                self.store.save(self.controller.chat, turn)
            self.store.close()
            self.store = None

    def _save(self, turn: Turn) -> None:
        if self.store is not None and turn in self.controller.chat.turns:
            self._saved_at = time.monotonic()
            self.store.save(self.controller.chat, turn)
            if self.store.failed and self.store.failed != self._complained:
                self._complained = self.store.failed
                self._warn(self.store.failed)

    def turn_began(self, turn: Turn) -> None:
        self._save(turn)

    def turn_progressed(self, turn: Turn, event: Event) -> None:
        if time.monotonic() - self._saved_at >= SAVE_EVERY:
            self._save(turn)

    def turn_ended(self, turn: Turn) -> None:
        self._save(turn)

    # Opening ----------------------------------------------------------------------------------------------------------

    async def new_chat(self) -> None:
        """An empty chat with the system prompt of the settings."""
        await self._show_chat(Chat(system=self.controller.config.system))

    async def take_chat(self, chat: Chat) -> None:
        """Keep a chat that came from elsewhere, and show it."""
        if self.store is not None:
            for turn in chat.turns:
                self.store.save(chat, turn)
            self.store.rename(chat.id, chat.title)
        await self._show_chat(chat)

    async def open_chat(self, id: str, head: str | None = None) -> None:
        """Show a stored chat from its end."""
        if self.store is None:
            return
        self.store.settle()
        try:
            chat = self.store.load(id, head)
        except (KeyError, ValueError) as error:
            log.warning("chat %s cannot be read", id, exc_info=error)
            self.say("That chat cannot be read any more.", "error")
            return
        await self._show_chat(chat)

    async def _show_chat(self, chat: Chat) -> None:
        if self.controller.busy:
            self.controller.cancel()
            turn = self.controller.abandon("The chat was left.")
            if turn is not None:
                turn.answer.status, turn.answer.error = Status.STOPPED, ""  # nothing went wrong
                self._save(turn)
        self.controller.show(chat)
        self.transcript.open(chat)
        self.show_header()
        self.show_figures()

    # Branches ---------------------------------------------------------------------------------------------------------

    async def answer_again(self, text: str | None = None, turn: Turn | None = None) -> str | None:
        """Answer the last message, or that of `turn`, anew, or `text` in its place. The old turn, and what followed it,
        stay in the store as a branch."""
        chat = self.controller.chat
        if self.controller.engine is None or not chat.turns:
            return "There is nothing to answer again."
        if self.controller.busy:
            return "An answer is under way; Esc stops it."
        old = turn if turn is not None and turn in chat.turns else chat.turns[-1]
        gone = chat.turns[chat.turns.index(old) :]
        del chat.turns[-len(gone) :]
        for each in reversed(gone):
            self.transcript.drop(each)
        await self.begin(self.controller.begin(text or old.user))
        return None

    async def step_branch(self, words: str, turn: Turn | None = None) -> str | None:
        """Show the next or previous sibling of the last turn, or of `turn`."""
        chat = self.controller.chat
        if self.store is None or not chat.turns:
            return "There are no branches yet."
        if self.controller.busy:
            return "An answer is under way; Esc stops it."
        self.store.settle()
        here = (turn if turn is not None and turn in chat.turns else chat.turns[-1]).id
        siblings = self.store.siblings(chat.id, here)
        if len(siblings) < 2:
            return "There is one answer here; /regen and /edit make branches."
        at = siblings.index(here)
        at = (at + (-1 if words.startswith("p") else 1)) % len(siblings)
        await self.open_chat(chat.id, self.store.leaf(chat.id, siblings[at]))
        return f"Branch {at + 1} of {len(siblings)}."

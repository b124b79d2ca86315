"""The chats on disk, and what becomes of the one at hand: saved while it streams, opened, branched. No widgets.

Shared by the app and the plain mode. A store that cannot be opened is said once, and the chat goes on unsaved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from engine.errors import DsparkError
from tui.conversation.chat import Chat, Turn
from tui.conversation.session import ChatSession
from tui.conversation.store import Store

log = logging.getLogger("dspark.tui")

SAVE_EVERY = 0.9
"""Seconds between writes of an answer that streams."""
UNSAVED = "Chats are not saved in this session."


class ChatLibrary:
    """Keeps the chat of a session, and brings others. What costs the user text goes to `warn`."""

    def __init__(self, session: ChatSession, warn: Callable[[str], object] = lambda sentence: None) -> None:
        self.session = session
        self.warn = warn
        self.store: Store | None = None
        self.deleted = ""
        """The chat that was deleted last."""
        self._saved_at = 0.0
        self._complained = ""

    def open(self, path: Path) -> None:
        """Open the file of chats."""
        try:
            self.store = Store(path)
        except (DsparkError, OSError) as error:
            log.warning("chats are not saved", exc_info=error)
            where = f"{error.strerror or error} ({error.filename})" if isinstance(error, OSError) else ""
            self.warn(f"{UNSAVED[:-1]}: {where}." if where else str(error))
            return
        if self.store.note:
            self.warn(self.store.note)

    def close(self) -> None:
        """Write what is under way, and let go of the file."""
        if self.store is not None:
            if self.session.turn is not None:
                self.store.save(self.session.chat, self.session.turn)
            self.store.close()
            self.store = None

    # Saving -----------------------------------------------------------------------------------------------------------

    def save(self, turn: Turn) -> None:
        """Write a turn as it is now: when it begins and when it ends."""
        if self.store is not None and turn in self.session.chat.turns:
            self._saved_at = time.monotonic()
            self.store.save(self.session.chat, turn)
            if self.store.failed and self.store.failed != self._complained:
                self._complained = self.store.failed
                self.warn(self.store.failed)

    def progressed(self, turn: Turn) -> None:
        """The same while it grows, now and then."""
        if time.monotonic() - self._saved_at >= SAVE_EVERY:
            self.save(turn)

    def keep(self, chat: Chat) -> Chat:
        """Write a chat that came from elsewhere."""
        if self.store is not None:
            for turn in chat.turns:
                self.store.save(chat, turn)
            self.store.rename(chat.id, chat.title)
        return chat

    # Other chats ------------------------------------------------------------------------------------------------------

    def new(self) -> Chat:
        """An empty chat with the system prompt of the settings."""
        return Chat(system=self.session.config.system)

    def load(self, id: str, head: str | None = None) -> Chat | str:
        """A stored chat, along its head or along the branch that ends in turn `head`; or why not."""
        if self.store is None:
            return UNSAVED
        self.store.settle()
        try:
            return self.store.load(id, head)
        except (KeyError, ValueError) as error:
            log.warning("chat %s cannot be read", id, exc_info=error)
            return "That chat cannot be read any more."

    def find(self, prefix: str) -> Chat | str:
        """The newest chat whose id begins so; the newest of all without one."""
        if self.store is None:
            return UNSAVED
        found = self.store.find(prefix)
        if found is None:
            return f"There is no chat whose id begins with {prefix}." if prefix else "There is no chat yet."
        return self.load(found)

    def show(self, chat: Chat) -> None:
        """Have the session go on with `chat`; what was under way in the old one is kept as it is."""
        left = self.session.leave()
        if left is not None:
            self.save(left)
        self.session.show(chat)

    def restore(self) -> str:
        """Bring back the chat that was deleted last."""
        if self.store is None:
            return UNSAVED
        if not self.deleted:
            return "Nothing was deleted."
        self.store.restore(self.deleted)
        return "The chat is back in the list."

    def branch(self, words: str, turn: Turn | None = None) -> tuple[Chat, str] | str:
        """The chat along the next or `previous` sibling of the last turn, or of `turn`, and which one it is; or why
        there is none."""
        chat = self.session.chat
        if self.store is None or not chat.turns:
            return "There are no branches yet."
        if self.session.busy:
            return "An answer is under way; Esc stops it."
        self.store.settle()
        here = (turn if turn is not None and turn in chat.turns else chat.turns[-1]).id
        siblings = self.store.siblings(chat.id, here)
        if len(siblings) < 2:
            return "There is one answer here; /regen and /edit make branches."
        at = (siblings.index(here) + (-1 if words.startswith("p") else 1)) % len(siblings)
        found = self.load(chat.id, self.store.leaf(chat.id, siblings[at]))
        return found if isinstance(found, str) else (found, f"Branch {at + 1} of {len(siblings)}.")

"""The conversation with what comes in for it: takes the engine's events, and draws as often as drawing is cheap.

Posts what others want to know of a stream; what a turn is stored or followed by is their business.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from engine.types import Event, Failed, Finished, Tokens
from tui.conversation.chat import Chat, Turn
from tui.conversation.event_queue import EventQueue
from tui.conversation.session import ChatSession
from tui.widgets.transcript.thumbnails import Thumbs
from tui.widgets.transcript.view import Transcript

FRAME = 1 / 30
"""Shortest time between two drawings of a stream."""
SLOWEST = 0.5
SHARE = 3
"""A drawing that took t is followed by at least SHARE × t without one."""
SCARCE = 48
"""The same where the model computes on the few cores that draw: what drawing takes, the answer is late by."""
FEW_CORES = 4
FIGURES_EVERY = 0.25
FIGURES_SCARCE = 1.0
"""Seconds between looks at the figures, and the same where cores are scarce."""
KEPT = 64
"""Turns that wait for their small pictures."""


class ConversationView(Vertical):
    """The transcript of a session, and a word about what came below the view."""

    DEFAULT_CSS = """
    ConversationView { width: 1fr; height: 1fr; }
    """

    class EventsWaiting(Message):
        """The engine has said something; posted from its thread."""

    class Drawn(Message):
        """These turns grew; `figures`: it is time to look at the figures again."""

        def __init__(self, turns: Sequence[Turn], figures: bool) -> None:
            super().__init__()
            self.turns, self.figures = turns, figures

    class Ended(Message):
        """A turn came to its end."""

        def __init__(self, turn: Turn) -> None:
            super().__init__()
            self.turn = turn

    def __init__(self, session: ChatSession, *, thumbnails: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self.transcript = Transcript(id="transcript")
        self.events = EventQueue(lambda: self.post_message(self.EventsWaiting()))
        self._session = session
        self._touched: dict[str, Turn] = {}
        self._figures_at = 0.0
        self._unseen = 0
        self._thumbnails = thumbnails
        self._thumbs = Thumbs()
        self._pictured: list[Turn] = []
        """Turns that want small pictures, the last one first."""
        self._drawing_small = False

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield Static(id="pill")

    # What comes in ----------------------------------------------------------------------------------------------------

    def on_conversation_view_events_waiting(self) -> None:
        self._drain()

    def _drain(self) -> None:
        """Take all that has come, draw once, and come back after a pause; stop when nothing came."""
        begun = time.thread_time()
        taken = 0
        for event in self.events.drain():
            self._take(event)
            taken += 1
        if taken:
            self.flush()
            self.call_after_refresh(self._pause, begun)
        elif not self.events.sleep():
            self.call_later(self._drain)

    def _pause(self, begun: float) -> None:
        cost = time.thread_time() - begun
        self.set_timer(min(max(share_of(sys.modules) * cost, FRAME), SLOWEST), self._drain)

    def _take(self, event: Event) -> None:
        turn = self._session.turn
        view = self.transcript.answer(turn) if turn is not None else None
        owner = self._session.apply(event, view.feed if view is not None else None)
        if owner is None:
            return
        self._touched[owner.id] = owner
        if isinstance(event, Tokens) and not self.transcript.following:
            self._unseen += len(event.pieces)
        if isinstance(event, Finished | Failed):
            self._figures_at = 0.0
            self.call_later(self.post_message, self.Ended(owner))

    def flush(self) -> None:
        """Draw what changed."""
        turns = [*self._touched.values()]
        self._touched.clear()
        for turn in turns:
            self.transcript.flush(turn)
        self._show_pill()
        now = time.monotonic()
        due = now - self._figures_at >= (FIGURES_SCARCE if share_of(sys.modules) == SCARCE else FIGURES_EVERY)
        if due:
            self._figures_at = now
        self.post_message(self.Drawn(turns, due))

    # Where the user looks ---------------------------------------------------------------------------------------------

    def show(self, chat: Chat) -> None:
        """Another conversation."""
        self.transcript.open(chat)
        self._show_pill()

    def follow(self) -> None:
        """Back to the end, and stay there."""
        self.transcript.anchor()
        self.call_after_refresh(self._show_pill)

    def on_entry_view_scrolled(self) -> None:
        if self._unseen and self.transcript.following:
            self._show_pill()

    def _show_pill(self) -> None:
        pill = self.query_one("#pill", Static)
        if self.transcript.following:
            self._unseen = 0
        if pill.has_class("-on") or self._unseen:
            pill.set_class(self._unseen > 0, "-on")
        if self._unseen:
            pill.update(Content(f"↓ {self._unseen} new tokens · Ctrl+End"))

    # Small pictures ---------------------------------------------------------------------------------------------------

    def on_transcript_pictured(self, event: Transcript.Pictured) -> None:
        if self.app.current_theme.ansi or not self._thumbnails:
            return
        self._pictured = [*(turn for turn in self._pictured if turn is not event.turn), event.turn][-KEPT:]
        if not self._drawing_small:
            self._drawing_small = True
            self._read_small()

    @work(thread=True, group="thumbs", exit_on_error=False)
    def _read_small(self) -> None:
        """One file after the other, whatever is paged through meanwhile."""
        while True:
            while self._pictured:
                turn = self._pictured.pop()
                if any(small := self._thumbs.read(turn.user, turn.images)):
                    self.app.call_from_thread(self.transcript.show_thumbs, turn, small)
            self._drawing_small = False
            if not self._pictured:  # else one came between the two lines above
                return
            self._drawing_small = True


def share_of(modules: Mapping[str, Any]) -> int:
    """How much longer than a drawing the pause after it must be. `modules`: those that are loaded; MLX is one of them
    once a model is."""
    scarce = "mlx.core" in modules and modules["engine.backend"].is_cpu() and (os.cpu_count() or 1) <= FEW_CORES
    return SCARCE if scarce else SHARE

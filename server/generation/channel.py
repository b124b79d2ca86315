"""From the model thread to asyncio: a channel per request that never blocks the one and never floods the other.

The model thread only appends to a deque and, at most once per wake-up, schedules one callback. What waits is merged,
so a reader that takes a byte a second costs one text buffer and slows nobody. News of a prompt being read wake only
those who show them: each wake-up costs the model thread its turn. Knows no HTTP and no dialect.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from engine.types import Event, Failed, Finished, Logprob, Prefilled, Prefilling, Request, Round, Source, Tokens

BACKLOG_CHARACTERS = 1 << 20
"""Unread text per request beyond which its reader counts as gone."""


class Ticket(Protocol):
    """What the engine returns for a submitted request."""

    def cancel(self) -> None: ...


class Submitter(Protocol):
    def submit(self, request: Request, listener: Callable[[Event], None]) -> Ticket: ...


@dataclass(slots=True)
class Ledger:
    """What the rounds of one generation add up to; written on the model thread, read after the end."""

    keep_logprobs: bool = False
    drafter: str = "none"
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    runs: list[tuple[Source, int]] = field(default_factory=list[tuple[Source, int]])
    logprobs: dict[int, Logprob] = field(default_factory=dict[int, Logprob])
    """By position; taken out when the piece is rendered."""

    def add(self, event: Round) -> None:
        self.drafter = event.chain or event.drafter
        self.rounds += 1
        self.drafted += len(event.drafted)
        self.accepted += event.accepted
        for source in event.sources:
            if self.runs and self.runs[-1][0] is source:
                self.runs[-1] = (source, self.runs[-1][1] + 1)
            else:
                self.runs.append((source, 1))
        if self.keep_logprobs:
            for offset, logprob in enumerate(event.logprobs):
                self.logprobs[event.start + offset] = logprob


Item = tuple[int, Prefilling | Prefilled | Tokens | Finished | Failed]


class Channel:
    """Events of one HTTP request's generations, in order, each with the index of its choice."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        logprobs: bool = False,
        choices: int = 1,
        news: Literal["all", "first", "none"] = "all",
    ) -> None:
        """news: which events of a prompt being read are worth a wake-up; the others wait for what comes next."""
        self._loop = loop
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()
        self._ready = asyncio.Event()
        self._scheduled = False
        self._news = news
        self._backlog = 0
        self._tickets: list[Ticket] = []
        self._overrun = False
        self._shut = False
        self.ledgers = [Ledger(logprobs) for _ in range(choices)]

    # Model thread -----------------------------------------------------------------------------------------------------

    def listener(self, choice: int, also: Callable[[Event], None]) -> Callable[[Event], None]:
        """The engine's listener for one choice; `also` sees every event first (metrics)."""

        def listen(event: Event) -> None:
            also(event)
            if isinstance(event, Round):
                self.ledgers[choice].add(event)
            else:
                self._put(choice, event)

        return listen

    def _put(self, choice: int, event: Prefilling | Prefilled | Tokens | Finished | Failed) -> None:
        with self._lock:
            last = self._items[-1] if self._items else None
            if isinstance(event, Tokens):
                self._backlog += len(event.text)
            if last is not None and last[0] == choice and isinstance(event, Tokens) and isinstance(last[1], Tokens):
                self._items[-1] = (choice, Tokens(event.request, last[1].pieces + event.pieces))
            elif (
                last is not None
                and last[0] == choice
                and isinstance(event, Prefilling | Prefilled)
                and isinstance(last[1], Prefilling)
            ):
                self._items[-1] = (choice, event)
            else:
                self._items.append((choice, event))
            overrun = self._backlog > BACKLOG_CHARACTERS and not self._overrun
            self._overrun |= overrun
            wake = not self._scheduled and self._worth_waking(event)
            self._scheduled |= wake
        if overrun:
            self.cancel()
        if wake:
            # The loop may be closed while the engine still reports: nobody is left to read then.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ready.set)

    def _worth_waking(self, event: Event) -> bool:
        if not isinstance(event, Prefilling | Prefilled):
            return True
        worth = self._news != "none"
        if self._news == "first":
            self._news = "none"
        return worth

    # Event loop -------------------------------------------------------------------------------------------------------

    def attach(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def cancel(self, choice: int | None = None) -> None:
        """Stop the engine's work for this request, or for one of its choices; may be called more than once."""
        for ticket in self._tickets if choice is None else self._tickets[choice : choice + 1]:
            ticket.cancel()

    def shut(self) -> None:
        """The server closes: whoever reads here is told, and reads no more. From any thread."""
        self._shut = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ready.set)

    async def get(self, timeout: float) -> list[Item] | None:
        """All that waits; an empty list when nothing came for `timeout` seconds; None after `shut`."""
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return []
        if self._shut:
            return None
        with self._lock:
            items = list(self._items)
            self._items.clear()
            self._backlog = 0
            self._scheduled = False
            self._ready.clear()
        return items

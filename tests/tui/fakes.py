"""A scripted engine with the interface of the real one: rounds from a script, on a thread or step by step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.chat.reasoning import THINK, ThinkSplitter
from engine.types import Event, Failed, Finished, Piece, Prefilled, Request, Round, Source, Tokens, Usage
from tui.engine_api import Listener, Progress


@dataclass
class FakeDrafter:
    name: str
    source: Source = Source.DRAFT
    available: bool = True
    reason: str = ""
    detail: str = ""


@dataclass
class FakeSpec:
    name: str = "fake-135m"
    context: int = 8192
    vision: bool = False


@dataclass
class FakePrompt:
    ids: list[int]
    boundaries: tuple[int, ...] = ()


class FakeFormat:
    """The texts in a row, a token a character."""

    thinks = False
    asked: tuple[bool | None, str | None] = (None, None)
    """What the last prompt was asked for: thinking, effort."""

    def splitter(self, ids: Sequence[int]) -> ThinkSplitter:
        return ThinkSplitter(THINK)

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], *, thinking: bool | None = None, effort: str | None = None
    ) -> FakePrompt:
        self.asked = (thinking, effort)
        return FakePrompt([ord(c) for m in messages for c in f"<{m['role']}>{m['content']}"])


class FakeTokenizer:
    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in ids)


def script(
    text: str, request: str = "", *, size: int = 4, source: Source = Source.DRAFT, start: int = 10, ms: float = 20.0
) -> list[Event]:
    """Rounds that say `text`: tokens of up to `size` characters, blocks of three drafts of which two, three, none, one
    are accepted in turn."""
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    events: list[Event] = []
    accepts = (2, 3, 0, 1)
    at = index = 0
    while at < len(pieces):
        accepted = 0 if index == 0 else min(accepts[index % 4], len(pieces) - at - 1)
        count = accepted + 1
        ids = tuple(range(at, at + count))
        drafted = () if index == 0 else (*ids[:accepted], *(9000 + i for i in range(3 - accepted)))
        events.append(
            Round(
                request,
                index,
                start + at,
                ids,
                drafted,
                accepted,
                source,
                "dflash",
                3,
                draft_ms=ms / 5,
                verify_ms=ms * 3 / 4,
                host_ms=ms / 20,
                width=1 + len(drafted),
                depth=start + at,
            )
        )
        sources = (source,) * accepted + (Source.TARGET,)
        shown = tuple(Piece(pieces[at + i], sources[i], at + i, start + at + i, index) for i in range(count))
        events.append(Tokens(request, shown))
        at += count
        index += 1
    return events


def rename(event: Event, request: str) -> Event:
    """The same event of another request."""
    from dataclasses import replace

    return replace(event, request=request)


class FakeTicket:
    def __init__(self, engine: FakeEngine, request: Request, listener: Listener) -> None:
        self.request = request
        self.engine = engine
        self.listener = listener
        self.cancelled = threading.Event()
        self.used: list[str] = []

    def cancel(self) -> None:
        self.cancelled.set()
        if self.engine.manual:
            self.finish("cancel")

    def use(self, drafter: str | None = None, cap: int | None = None) -> None:
        if drafter:
            self.used.append(drafter)

    # For tests that play the engine by hand.

    def say(self, *events: Event) -> None:
        for event in events:
            self.listener(rename(event, self.request.id))

    def prefilled(self, cached: int = 0) -> None:
        n = len(self.request.prompt)
        self.say(Prefilled("", n, cached, 12.0, hit="turn" if cached else "miss", saved_ms=900.0 if cached else 0.0))

    def finish(self, reason: Any = "stop") -> None:
        self.say(Finished("", reason, Usage(prompt=len(self.request.prompt))))

    def fail(self, error: Exception) -> None:
        self.say(Failed("", error))


@dataclass
class FakeEngine:
    """`manual`: the test drives each ticket. Otherwise a thread plays `answers` in turn, `pause` seconds a round."""

    answers: list[str] = field(default_factory=lambda: ["Hello **world**."])
    manual: bool = False
    pause: float = 0.0
    drafter: str = "dflash"
    refuse: Exception | None = None
    spec: FakeSpec = field(default_factory=FakeSpec)
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    format: FakeFormat = field(default_factory=FakeFormat)
    tickets: list[FakeTicket] = field(default_factory=list)
    closed: bool = False
    generation: dict[str, Any] = field(default_factory=dict)
    drafters: list[FakeDrafter] = field(
        default_factory=lambda: [
            FakeDrafter("none", Source.TARGET),
            FakeDrafter("lookup", Source.LOOKUP),
            FakeDrafter("dflash"),
            FakeDrafter("dspark", available=False, reason="its vocabulary has 32000 entries, the model's 49152"),
        ]
    )

    def submit(self, request: Request, listener: Listener | None = None) -> FakeTicket:
        if self.refuse is not None:
            raise self.refuse
        assert listener is not None
        ticket = FakeTicket(self, request, listener)
        self.tickets.append(ticket)
        if not self.manual:
            threading.Thread(target=self._play, args=(ticket,), daemon=True).start()
        return ticket

    def _play(self, ticket: FakeTicket) -> None:
        ticket.prefilled(cached=len(ticket.request.prompt) // 2)
        text = self.answers[(len(self.tickets) - 1) % len(self.answers)]
        for event in script(text):
            if ticket.cancelled.is_set():
                ticket.finish("cancel")
                return
            if isinstance(event, Round) and self.pause:
                time.sleep(self.pause)
            ticket.say(event)
        ticket.finish()

    def close(self) -> None:
        self.closed = True


def loader(engine: FakeEngine) -> Callable[[Callable[[Progress], None]], FakeEngine]:
    def load(progress: Callable[[Progress], None]) -> FakeEngine:
        progress(Progress("fake-135m", 1, 2))
        return engine

    return load

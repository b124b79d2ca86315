"""A scripted engine for front ends: every request gets the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from engine.chat.reasoning import ThinkSplitter
from engine.types import Event, Failed, Finished, Piece, Prefilled, Request, Round, Source, Tokens, Usage

Script = list[tuple[Source, str]]
CHAIN = "lookup+dspark"


def events_of(script: Script, reason: Any = "stop") -> Iterator[Event]:
    """Two tokens a round: one accepted draft and one of the target's, as far as the script says so."""
    yield Prefilled("r1", tokens=5, cached=0, ms=1.0)
    for index, (source, text) in enumerate(script):
        accepted = int(source is not Source.TARGET)
        who = {Source.LOOKUP: "lookup", Source.DRAFT: "dspark"}.get(source, CHAIN)
        drafted = (index,) * accepted
        yield Round("r1", index, 5 + index, (index,), drafted, accepted, source, who, cap=accepted, chain=CHAIN)
        yield Tokens("r1", (Piece(text, source, index, 5 + index, index),))
    usage = Usage(5, len(script), 0, 2, 1, len(script), 1.0, 10.0)
    yield Finished("r1", reason, usage, tuple(range(len(script))), "".join(text for _, text in script))


@dataclass
class FakeTicket:
    events: Iterator[Event]
    cancelled: bool = False
    at_event: Callable[[int], None] | None = None

    def __iter__(self) -> Iterator[Event]:
        for number, event in enumerate(self.events):
            if self.at_event:
                self.at_event(number)
            yield event

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeEngine:
    """Answers every request with the same script."""

    script: Script = field(
        default_factory=lambda: [(Source.TARGET, "Hello"), (Source.LOOKUP, " there"), (Source.DRAFT, "!")]
    )
    spec: Any = field(default_factory=lambda: SimpleNamespace(name="fake", vision=False, context=100))
    target: Any = field(default_factory=lambda: SimpleNamespace(eye=None))
    events: Callable[[], Iterator[Event]] | None = None
    at_event: Callable[[int], None] | None = None
    request: Request | None = None
    loaded: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    thinking: Any = None
    generation: dict[str, Any] = field(default_factory=dict)
    ticket: FakeTicket | None = None
    closed: bool = False

    @property
    def format(self) -> Any:
        def prompt(messages: list[Any], thinking: bool | None = None, effort: str | None = None) -> Any:
            self.messages, self.thinking = messages, (thinking, effort)
            return SimpleNamespace(ids=[1, 2, 3], boundaries=())

        return SimpleNamespace(prompt=prompt, splitter=lambda _ids: ThinkSplitter())

    def submit(self, request: Request) -> FakeTicket:
        self.request = request
        self.ticket = FakeTicket(self.events() if self.events else events_of(self.script), at_event=self.at_event)
        return self.ticket

    def close(self) -> None:
        self.closed = True


def failing(error: Exception) -> Iterator[Event]:
    yield Prefilled("r1", tokens=5, cached=0, ms=1.0)
    yield Failed("r1", error)

"""A conversation in memory: turns, and of each answer the text with its provenance and the rounds behind it.

Knows no screen and no disk. What the engine says goes in as events; what is shown, stored and exported comes out.
"""

from __future__ import annotations

import time
import uuid
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.chat.reasoning import Segment, ThinkSplitter
from engine.chat.terminal_safe import Sanitizer
from engine.types import Event, Failed, Finished, Prefilled, Prefilling, Request, Round, Sampling, Tokens, Usage
from tui.conversation.stats import Tally
from tui.provenance import CODES, runs


class Status(StrEnum):
    """How an answer stands."""

    WAITING = "waiting"
    STREAMING = "streaming"
    DONE = "done"
    LENGTH = "length"
    STOPPED = "stopped"
    """Cut by the user; what was there stays."""
    FAILED = "failed"
    LOST = "lost"
    """The program ended in mid-answer."""

    @property
    def over(self) -> bool:
        return self not in (Status.WAITING, Status.STREAMING)


_REASONS = {"stop": Status.DONE, "length": Status.LENGTH, "cancel": Status.STOPPED, "context": Status.LENGTH}


@dataclass(frozen=True, slots=True)
class Span:
    """One token in an answer's text: text[start:end] of it, where end is this span's and start the previous one's."""

    end: int
    code: int
    token: int
    position: int
    round: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer was asked with."""

    sampling: Sampling
    checksum: int
    """Of the prompt's ids, which are rendered again when they are needed."""
    pictures: bool = False
    ids: Sequence[int] = ()
    """Empty for an answer of an earlier session."""


def asked(request: Request) -> Asked:
    """What is kept of a request."""
    ids = array("q", request.prompt)
    return Asked(request.sampling, checksum(ids), request.embeddings is not None, ids)


def checksum(ids: Sequence[int]) -> int:
    return zlib.crc32(array("q", ids).tobytes())


@dataclass(slots=True)
class Answer:
    """One answer of the model, growing."""

    text: str = ""
    prov: bytearray = field(default_factory=bytearray)
    spans: list[Span] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    status: Status = Status.WAITING
    error: str = ""
    prefilled: Prefilled | None = None
    usage: Usage = field(default_factory=Usage)
    drafter: str = ""
    model: str = ""
    seed: int | None = None
    asked: Asked | None = None
    """The prompt and the sampling, for looking at its tokens again."""
    started: float = field(default_factory=time.time)
    first_ms: float | None = None
    """Time to the first token, from submit."""
    read: tuple[int, int] = (0, 0)
    """Prompt tokens read so far, and all of them."""
    splitter: ThinkSplitter | None = None
    """Tells reasoning from the reply, for models that reason; without one all text is the reply."""
    reply_ranges: list[tuple[int, int]] = field(default_factory=list)
    """Parts of `text` that are the reply; empty without a splitter."""
    thought_ranges: list[tuple[int, int]] = field(default_factory=list)
    """Parts of `text` that are reasoning. Markers are in neither."""
    thought_s: float = 0.0
    """Seconds from the first reasoning to the first word of the reply."""
    _filter: Sanitizer = field(default_factory=Sanitizer)

    def take(self, event: Event) -> Iterator[tuple[str, int]]:
        """Apply one event; yields (text, class) to show."""
        match event:
            case Tokens():
                yield from self._tokens(event)
            case Round():
                self.rounds.append(event)
                self.tally.add(event)
                self.drafter = event.chain or event.drafter
            case Prefilling():
                self.read = (event.done, event.total)
            case Prefilled():
                self.prefilled = event
                self.status = Status.STREAMING
            case Finished():
                yield from self._flush()
                self.usage = event.usage
                self.status = _REASONS[event.reason]
            case Failed():
                yield from self._flush()
                self.usage = event.usage
                self.error = " ".join(Sanitizer().feed(event.message).split())
                self.status = Status.FAILED

    def _tokens(self, event: Tokens) -> Iterator[tuple[str, int]]:
        self.status = Status.STREAMING
        if self.first_ms is None:
            self.first_ms = (time.time() - self.started) * 1000
        for piece in event.pieces:
            text = self._filter.feed(piece.text)
            code = CODES[piece.source]
            self.text += text
            self.prov += bytes((code,)) * len(text)
            self.spans.append(Span(len(self.text), code, piece.token, piece.position, piece.round))
            if text and self.splitter is None:
                yield text, code
            elif text and self.splitter is not None:
                yield from self._split(self.splitter.feed(text))

    def _flush(self) -> Iterator[tuple[str, int]]:
        """What the splitter still held back."""
        if self.splitter is not None:
            yield from self._split(self.splitter.flush())
            self.splitter = None

    def _split(self, segments: list[Segment]) -> Iterator[tuple[str, int]]:
        for segment in segments:
            reasoning = segment.kind == "reasoning"
            ranges = self.thought_ranges if reasoning else self.reply_ranges
            start, end = segment.start, segment.start + len(segment.text)
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
            if reasoning:
                self.thought_s = time.time() - self.started
            else:
                for a, b, code in runs(self.prov[segment.start : end]):
                    yield segment.text[a:b], code

    @property
    def reply(self) -> str:
        """The text without reasoning."""
        if not self.thought_ranges:
            return self.text
        return "".join(self.text[a:b] for a, b in self.reply_ranges)

    def pieces(self, reasoning: bool = False) -> Iterator[tuple[str, int]]:
        """(text, class) of the reply so far, or of the reasoning."""
        split = self.splitter is not None or self.thought_ranges
        ranges = self.thought_ranges if reasoning else self.reply_ranges if split else [(0, len(self.text))]
        for first, last in ranges:
            for a, b, code in runs(self.prov[first:last]):
                yield self.text[first + a : first + b], code

    def span_at(self, offset: int) -> int:
        """Index of the token that text[offset] belongs to."""
        return min(bisect_right(self.spans, offset, key=lambda s: s.end), len(self.spans) - 1)

    def span_text(self, index: int) -> str:
        start = self.spans[index - 1].end if index else 0
        return self.text[start : self.spans[index].end]


@dataclass(slots=True)
class Turn:
    """What the user said and what came back."""

    user: str
    answer: Answer = field(default_factory=Answer)
    images: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True)
class Chat:
    """A conversation."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    title: str = ""
    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    created: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        """The title, or the beginning of the first message."""
        if self.title:
            return self.title
        return title_of(self.turns[0].user) if self.turns else "new chat"

    def messages(self, upto: int | None = None) -> list[dict[str, str]]:
        """Chat messages for the template: whole turns, then the user's part of the last one (turn `upto`)."""
        last = len(self.turns) - 1 if upto is None else upto
        out = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[:last]:
            if turn.answer.text:  # one that was stopped before its first word is no part of the conversation
                out.append({"role": "user", "content": turn.user})
                out.append({"role": "assistant", "content": turn.answer.reply})
        if self.turns:
            out.append({"role": "user", "content": self.turns[last].user})
        return out

    def find(self, words: str) -> Turn | None:
        """The last turn in which all words occur; None without words."""
        wanted = words.casefold().split()
        for turn in reversed(self.turns if wanted else []):
            text = f"{turn.user}\n{turn.answer.text}".casefold()
            if all(word in text for word in wanted):
                return turn
        return None

    @property
    def tally(self) -> Tally:
        """Over all turns."""
        whole = Tally()
        for turn in self.turns:
            for round in turn.answer.rounds:
                whole.add(round)
        return whole


def title_of(text: str, limit: int = 48) -> str:
    """The beginning of a message, on one line."""
    line = " ".join(Sanitizer().feed(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"

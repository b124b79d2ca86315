"""What every tool-call syntax shares: a text source that arrives in pieces, and the machine around a family's grammar.

A family is a file beside this one: its opening marks and one generator that reads a call from a `Source` and emits
deltas as soon as they are certain. Parsing is active only when the request declared tools. Knows no dialect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from engine.chat.reasoning import ThinkSplitter
from server.types import CallArguments, CallEnd, CallStart, Delta, Text, Tool, fresh_id

Reading = Generator[None, None, Any]
"""A step of a parser: yields when it needs more text, returns its result."""


class NotACall(Exception):
    """What looked like a call is not one: an undeclared name, or broken syntax before the name. It is text then."""


class Source:
    """Text that arrives in pieces. Every reader is a generator that yields while it must wait."""

    def __init__(self) -> None:
        self.text = ""
        self.closed = False
        self.position = 0
        """Characters taken so far."""
        self._taken: list[str] = []

    def more(self) -> Generator[None, None, bool]:
        """Wait for further text; False when none will come."""
        size = len(self.text)
        while len(self.text) == size:
            if self.closed:
                return False
            yield
        return True

    def mark(self) -> None:
        """Forget what was read so far; `raw` begins here."""
        self._taken.clear()

    @property
    def raw(self) -> str:
        return "".join(self._taken)

    def take(self, count: int) -> str:
        part, self.text = self.text[:count], self.text[count:]
        self.position += len(part)
        self._taken.append(part)
        return part

    def peek(self) -> Generator[None, None, str]:
        """The next character, or '' at the end."""
        while not self.text:
            if not (yield from self.more()):
                return ""
        return self.text[0]

    def at(self, word: str) -> Generator[None, None, bool]:
        """Whether the text goes on with `word`; waits only while it still could."""
        while len(self.text) < len(word) and word.startswith(self.text):
            if not (yield from self.more()):
                break
        return self.text.startswith(word)

    def accept(self, word: str) -> Generator[None, None, bool]:
        if (yield from self.at(word)):
            self.take(len(word))
            return True
        return False

    def space(self) -> Reading:
        while (yield from self.peek()).isspace():
            self.take(len(self.text) - len(self.text.lstrip()))

    def until(self, *words: str, limit: int = 1 << 20) -> Generator[None, None, str]:
        """Text before the first of `words`, which stays. NotACall when the text ends or runs on past `limit`."""
        start = 0
        longest = max(map(len, words))
        while True:
            hits = [at for w in words if (at := self.text.find(w, start)) >= 0]
            if hits:
                return self.take(min(hits))
            start = max(0, len(self.text) - longest + 1)
            if len(self.text) > limit or not (yield from self.more()):
                raise NotACall

    def name(self, *ends: str) -> Generator[None, None, str]:
        return (yield from self.until(*ends, limit=256)).strip()


def partial_tail(text: str, words: Sequence[str]) -> int:
    """Length of the longest end of `text` that could become one of `words`."""
    longest = 0
    for word in words:
        for n in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:n]):
                longest = n
                break
    return longest


class ToolParser(ABC):
    """Splits answer text into text and calls. `feed` and `finish` return deltas in order; neither ever raises."""

    name: ClassVar[str]
    signs: ClassVar[tuple[str, ...]]
    """What stands in a chat template that teaches this syntax."""
    openers: ClassVar[tuple[str, ...]]

    def __init__(self, tools: Sequence[Tool], prefix: str = "call_") -> None:
        self.tools = {t.name: t for t in tools}
        self._prefix = prefix
        self._source = Source()
        self._out: list[Delta] = []
        self._calls = 0
        self._open = False
        self._doubtful: int | None = None
        """Where a call may begin that is not certain yet."""
        self.said: list[tuple[int, str]] = []
        """Texts that are no part of a call since somebody last emptied it, with their offsets."""
        self._machine = self._run()
        next(self._machine)

    @abstractmethod
    def calls(self) -> Reading:
        """Read what follows an opener, which is still in the source: one call or several, and the closing mark."""

    # For the pipeline -------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Delta]:
        if text:
            self._source.text += text
            self._machine.send(None)
        return self._flush()

    def finish(self) -> list[Delta]:
        self._source.closed = True
        try:
            while True:
                self._machine.send(None)
        except StopIteration:
            pass
        return self._flush()

    @property
    def settled(self) -> int:
        """Characters from the beginning on that are known to be text, or part of a call."""
        return self._source.position if self._doubtful is None else self._doubtful

    # For families -----------------------------------------------------------------------------------------------------

    def begin(self, name: str) -> Tool:
        """Announce a call. NotACall unless the tool was declared."""
        tool = self.tools.get(name)
        if tool is None:
            raise NotACall
        self._out.append(CallStart(self._calls, fresh_id(self._prefix), name))
        self._open = True
        self._doubtful = None
        return tool

    def arguments(self, text: str) -> None:
        if text:
            self._out.append(CallArguments(self._calls, text))

    def end(self) -> None:
        self._out.append(CallEnd(self._calls))
        self._calls += 1
        self._open = False

    def listed(self, one: Callable[[], Reading]) -> Reading:
        """What `one` reads, alone or several times between brackets."""
        source = self._source
        yield from source.space()
        many = yield from source.accept("[")
        while True:
            yield from source.space()
            yield from one()
            source.mark()
            yield from source.space()
            if not (many and (yield from source.accept(","))):
                break
        if many:
            yield from source.accept("]")
            yield from source.space()

    # The machine ------------------------------------------------------------------------------------------------------

    def _run(self) -> Generator[None, None, None]:
        source = self._source
        yield
        while True:
            hits = [at for w in self.openers if (at := source.text.find(w)) >= 0]
            safe = min(hits) if hits else len(source.text) - partial_tail(source.text, self.openers)
            self._say(source.take(safe))
            if hits:
                yield from self._attempt()
            elif not (yield from source.more()):
                self._say(source.take(len(source.text)))
                return

    def _attempt(self) -> Reading:
        """One opener: calls, or text again when it was none."""
        self._source.mark()
        before = self._calls
        self._doubtful = self._source.position
        try:
            yield from self.calls()
        except (NotACall, ValueError, RecursionError):
            if self._open:
                # Cut in the middle of its arguments: no CallEnd tells that it is not whole.
                self._calls += 1
                self._open = False
                self._source.take(len(self._source.text))
            elif self._calls == before:
                self._say(self._source.raw or self._source.take(1))
        self._doubtful = None

    def _say(self, text: str) -> None:
        if not text or (self._calls and not text.strip()):
            return
        self._out.append(Text(text))
        self.said.append((self._source.position - len(text), text))

    def _flush(self) -> list[Delta]:
        out, self._out = self._out, []
        merged: list[Delta] = []
        for delta in out:
            last = merged[-1] if merged else None
            if isinstance(delta, CallArguments) and isinstance(last, CallArguments) and last.index == delta.index:
                merged[-1] = CallArguments(delta.index, last.text + delta.text)
            elif isinstance(delta, Text) and isinstance(last, Text):
                merged[-1] = Text(last.text + delta.text)
            else:
                merged.append(delta)
        return merged


class ShownText:
    """Where stop texts count: in what a client is shown as text, not in reasoning and not in a call's markup. A
    `StopScope` of engine/types."""

    def __init__(self, splitter: ThinkSplitter, parser: ToolParser) -> None:
        self._splitter = splitter
        self._parser = parser
        self._parts: list[tuple[int, int]] = []
        """(offset in what the parser was given, offset in the whole), where either jumps."""
        self._given = 0

    @property
    def settled(self) -> int:
        parsed = self._parser.settled
        return self._whole(parsed) if parsed < self._given else self._splitter.given

    def feed(self, text: str) -> list[tuple[int, str]]:
        for part in self._splitter.feed(text):
            if part.kind == "answer":
                self._parts.append((self._given, part.start))
                self._given += len(part.text)
                self._parser.feed(part.text)
        found, self._parser.said = self._parser.said, []
        return [run for start, said in found for run in self._runs(start, said)]

    def _runs(self, start: int, said: str) -> list[tuple[int, str]]:
        """The text in stretches that are one in the whole as well."""
        cuts = [start, *(at for at, _ in self._parts if start < at < start + len(said)), start + len(said)]
        return [(self._whole(a), said[a - start : b - start]) for a, b in pairwise(cuts)]

    def _whole(self, offset: int) -> int:
        at, whole = next(p for p in reversed(self._parts) if p[0] <= offset)
        return whole + offset - at

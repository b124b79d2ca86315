"""Telling reasoning from answer in a stream of text.

A `Style` says how a model family marks its reasoning; a `ThinkSplitter` takes text in any pieces and gives back the
same segments as if it had come in one. Knows no tokenizer and no template.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["reasoning", "answer"]


@dataclass(frozen=True, slots=True)
class Style:
    """Markers of one family. With `message` set the stream is a row of messages, each with a header that names its
    reader; otherwise reasoning stands between `opener` and `closer`."""

    name: str
    opener: str = ""
    closer: str = ""
    message: str = ""
    """Ends a message's header."""
    ends: tuple[str, ...] = ()
    """End a message, or begin the next one's header."""
    private: str = ""
    """Pattern that is found in the header of reasoning."""


THINK = Style("think", "<think>", "</think>")
BRACKET = Style("bracket", "[THINK]", "[/THINK]")
CHANNEL = Style("channel", "<|channel>thought\n", "<channel|>")
MESSAGES = Style(
    "messages",
    message="<|message|>",
    ends=("<|start|>", "<|eom|>", "<|end|>", "<|eot|>"),
    private=r"to=self\b|<\|channel\|>\s*analysis",
)


CALL_HEADER = "to=functions."
"""In the header of a message that is a call."""


def style_of(template: str) -> Style:
    """The style that a chat template speaks; plain think tags where nothing else is named."""
    if "<|message|>" in template:
        return MESSAGES
    if "<|channel>" in template or "<channel|>" in template:
        return CHANNEL
    return BRACKET if "[THINK]" in template else THINK


class Segment(NamedTuple):
    """A run of text of one kind. `start` is its offset in the raw stream, markers counted; it is contiguous there."""

    kind: Kind
    text: str
    start: int


def opened(tail: str, style: Style) -> bool:
    """Whether a prompt that ends in `tail` leaves the model inside its reasoning."""
    if style.message:
        at = tail.rfind(style.message)
        return at >= 0 and not tail[at + len(style.message) :].strip() and _private(tail[:at], style)
    at = tail.rfind(style.opener.rstrip("\n"))
    return at >= 0 and not tail[at + len(style.opener.rstrip("\n")) :].strip()


def _private(header: str, style: Style) -> bool:
    begin = max(header.rfind(end) for end in style.ends)
    return re.search(style.private, header[begin + 1 if begin >= 0 else 0 :]) is not None


def closing(style: Style) -> str:
    """What ends an open reasoning block at once."""
    return f"\n{style.closer}\n\n" if style.closer else f"{style.ends[1]}{style.ends[0]}assistant{style.message}"


class ThinkSplitter:
    """Feed text, get segments. Markers, the blanks inside a reasoning block's ends and those before an answer are not
    given out; half a marker is held back until it is known. Blocks may follow each other."""

    def __init__(self, style: Style = THINK, *, inside: bool = False, header: bool = False) -> None:
        """inside: the prompt opened the reasoning. header: the prompt ended in a message header."""
        self.style = style
        self._kind: Kind = "reasoning" if inside else "answer"
        self._header = "" if style.message and header and not inside else None
        self._buffer = ""
        self._at = 0
        """Raw offset of the buffer's start."""
        self._blank = True
        """Nothing but blanks was given out since the last marker."""
        self._fresh_line = True
        self._trim = inside
        """Blanks at the start of a block belong to its marker."""
        self._spoke = False

    @property
    def kind(self) -> Kind:
        """What is being said now."""
        return self._kind

    @property
    def given(self) -> int:
        """Characters of the raw stream that are decided: given out, or known to be markers."""
        return self._at

    def feed(self, text: str) -> list[Segment]:
        self._buffer += text
        out: list[Segment] = []
        while self._step(out, last=False):
            pass
        return out

    def after(self, said: str) -> ThinkSplitter:
        """The same, behind a beginning that was said before; what follows counts from 0 again."""
        self.feed(said)
        self._buffer, self._at = "", 0
        return self

    def flush(self) -> list[Segment]:
        """The end of the stream: what was held back is text after all."""
        out: list[Segment] = []
        while self._step(out, last=True):
            pass
        if self._header is not None and self._spoke:
            self._drop(len(self._buffer))
        # A header that never became a message, with nothing before it, was an answer without one.
        self._header = None
        self._emit(out, len(self._buffer), end="stream")
        return out

    def _step(self, out: list[Segment], *, last: bool) -> bool:
        """Handle what comes before the next marker, and the marker. False when more text is needed."""
        markers = self._markers()
        found = min(
            ((at, m) for m in markers if (at := self._find(m)) >= 0),
            key=lambda f: (f[0], -len(f[1])),
            default=None,
        )
        if found is None:
            hold = 0 if last else max((_overlap(self._buffer, m) for m in markers), default=0)
            if self._header is None:
                self._emit(out, len(self._buffer) - hold)
            return False
        at, marker = found
        if self._header is None:
            self._emit(out, at, end="block")
            self._drop(len(marker))
        else:
            self._header += self._buffer[:at]
            self._drop(at + len(marker))
            call = self._header.find(CALL_HEADER)
            if call >= 0:
                # Who is called stands in the header only: whoever reads calls needs it.
                text = self._header[call:] + marker
                out.append(Segment("answer", text, self._at - len(text)))
        self._pass(marker)
        return True

    def _markers(self) -> tuple[str, ...]:
        if self._header is not None:
            return (self.style.message,)
        if self.style.message:
            return (*self.style.ends, self.style.message)
        if self._kind == "reasoning":
            return (self.style.closer,)
        return (self.style.opener, self.style.closer) if self._blank else (self.style.opener,)

    def _find(self, marker: str) -> int:
        """Where a marker counts: an opener only where a line begins, so that an answer may speak about it; a closer
        without opener only before the answer."""
        at = self._buffer.find(marker)
        if marker == self.style.closer and self._kind == "answer" and self._buffer[:at].strip():
            return -1
        while at >= 0 and marker == self.style.opener and not self._line_start(at):
            at = self._buffer.find(marker, at + 1)
        return at

    def _line_start(self, at: int) -> bool:
        before = self._buffer[:at].rstrip(" \t")
        return before.endswith("\n") if before else self._fresh_line

    def _pass(self, marker: str) -> None:
        style = self.style
        if not style.message:
            self._kind = "reasoning" if marker == style.opener else "answer"
        elif marker == style.message:
            self._kind = "reasoning" if re.search(style.private, self._header or "") else "answer"
            self._header = None
        elif marker == style.ends[0]:
            self._header = ""
        self._blank = self._fresh_line = self._trim = True

    def _emit(self, out: list[Segment], count: int, end: Literal["", "block", "stream"] = "") -> None:
        """Give out the first `count` characters of the buffer, as far as it is known that they are not blanks around a
        marker. `end` says what comes after them."""
        text = self._buffer[:count]
        if self._blank:
            lead = len(text) - len(text.lstrip())
            if self._trim or (end == "block" and lead == len(text)):
                self._drop(lead)
                text = text[lead:]
            elif lead == len(text) and not end:
                return
        trailing = 0
        if self._kind == "reasoning":
            trailing = len(text) - len(text.rstrip())
            text = text[: len(text) - trailing]
        if text:
            out.append(Segment(self._kind, text, self._at))
            self._blank = self._blank and not text.strip()
            self._fresh_line = text.rstrip(" \t").endswith("\n") or (self._fresh_line and not text.strip(" \t"))
            self._spoke = True
            self._drop(len(text))
        if end:
            self._drop(trailing)

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._at += count


def _overlap(text: str, marker: str) -> int:
    """Length of the longest end of `text` that a marker could begin with."""
    for n in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:n]):
            return n
    return 0

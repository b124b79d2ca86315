"""The output of a single answer: text with colours by provenance, one object, or one object an event.

Everything the model says passes one filter of control characters. Knows events, and neither an engine nor a terminal.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, TextIO

from engine.chat.reasoning import Segment, ThinkSplitter
from engine.chat.terminal_safe import Sanitizer
from engine.types import Event, Failed, Finished, Round, Source, Tokens

Mode = Literal["text", "json", "jsonl"]
_COLOURS = {Source.DRAFT: "\x1b[32m", Source.LOOKUP: "\x1b[36m", Source.TARGET: ""}
_DIM = "\x1b[2m"
_RESET = "\x1b[0m"


class Writer:
    """Takes the events of one request, in order; `end` closes the output.

    The answer goes to `out`. Reasoning does so only on a terminal, dimmed; in JSON it has a field of its own.
    """

    def __init__(self, out: TextIO, mode: Mode, *, stream: bool, coloured: bool, splitter: ThinkSplitter) -> None:
        self.out = out
        self.mode: Mode = mode
        self.failed: Failed | None = None
        self.finished: Finished | None = None
        self.rounds: list[Round] = []
        self.runs: list[tuple[Source, str]] = []
        """The answer, in runs of one source."""
        self.reasoning = ""
        self._stream = stream
        self._coloured = coloured and mode == "text"
        self._shows_reasoning = mode == "text" and stream and out.isatty()
        self._splitter = splitter
        self._filters = {"answer": Sanitizer(), "reasoning": Sanitizer()}
        self._ends: list[int] = []
        self._sources: list[Source] = []
        """Source of the raw text before each of `_ends`."""
        self._held: list[str] = []
        self._style = ""
        self._kind = "answer"

    def event(self, event: Event) -> None:
        match event:
            case Tokens():
                self._take(event)
            case Round():
                self.rounds.append(event)
            case Finished():
                self.finished = event
            case Failed():
                self.failed = event
            case _:
                pass
        if self.mode == "jsonl":
            self.out.write(json.dumps(as_json(event), ensure_ascii=False) + "\n")
            self.out.flush()

    def _take(self, tokens: Tokens) -> None:
        for piece in tokens.pieces:
            self._ends.append((self._ends[-1] if self._ends else 0) + len(piece.text))
            self._sources.append(piece.source)
            self._show(self._splitter.feed(piece.text))
        if self.mode == "text" and self._stream:
            self.out.flush()

    def _show(self, segments: list[Segment]) -> None:
        for segment in segments:
            at = segment.start
            while at < segment.start + len(segment.text):
                run = bisect_right(self._ends, at)
                upto = min(self._ends[run], segment.start + len(segment.text))
                raw = segment.text[at - segment.start : upto - segment.start]
                if text := self._filters[segment.kind].feed(raw):
                    self._say(segment.kind, self._sources[run], text)
                at = upto

    def _say(self, kind: str, source: Source, text: str) -> None:
        if kind == "reasoning":
            self.reasoning += text
            if not self._shows_reasoning:
                return
        elif self.runs and self.runs[-1][0] == source:
            self.runs[-1] = (source, self.runs[-1][1] + text)
        else:
            self.runs.append((source, text))
        if self.mode == "text":
            between = "\n\n" if kind != self._kind and self.reasoning and self._shows_reasoning and self.runs else ""
            self._kind = kind
            self._put(between + self._paint(_DIM if kind == "reasoning" else _COLOURS[source]) + text)

    def _paint(self, style: str) -> str:
        if not self._coloured or style == self._style:
            return ""
        before, self._style = self._style, style
        return (_RESET if before else "") + style

    def _put(self, text: str) -> None:
        if self._stream:
            self.out.write(text)
        else:
            self._held.append(text)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.runs)

    def end(self, about: Mapping[str, Any]) -> None:
        """Whatever closes the output: a newline, or the object with these further entries."""
        self._show(self._splitter.flush())
        if self.mode == "json" and self.failed is None:
            self.out.write(json.dumps({**self.object(), **about}, ensure_ascii=False, indent=2) + "\n")
        elif self.mode == "text":
            said = self.text or (self.reasoning if self._shows_reasoning else "")
            newline = "\n" if said and not said.endswith("\n") else ""
            self.out.write("".join(self._held) + (_RESET if self._style else "") + newline)
        self.out.flush()

    @property
    def drafter(self) -> str:
        """What was in charge at the end: a chain, whichever part of it proposed last."""
        last = self.rounds[-1] if self.rounds else None
        return (last.chain or last.drafter) if last else "none"

    def object(self) -> dict[str, Any]:
        finished = self.finished
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "finish_reason": finished.reason if finished else None,
            "tokens": list(finished.tokens) if finished else [],
            "provenance": [[source.value, len(text)] for source, text in self.runs],
            "drafter": self.drafter,
            "usage": asdict(finished.usage) if finished else {},
        }

    def summary(self, seconds: float) -> str:
        """One line: active drafter, acceptance, tokens a round, speed."""
        usage = self.finished.usage if self.finished else None
        if usage is None:
            return "[no answer]"
        accept = f"accept {usage.accepted / usage.drafted:.2f}" if usage.drafted else "nothing drafted"
        rate = max(0, usage.completion - 1) / usage.decode_ms * 1000 if usage.decode_ms else 0.0
        speed = f"{usage.completion / max(1, usage.rounds):.1f}/round · {rate:.1f} tok/s"
        return f"[{self.drafter} · {accept} · {speed} · {usage.completion} tokens in {seconds:.1f} s]"


def wants_colour(choice: str, out: TextIO) -> bool:
    """`always` and `never` are obeyed; otherwise a terminal that is not dumb, and no NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def as_json(event: Event) -> dict[str, Any]:
    """An event as plain data, named by its class in lower case. Control characters are escaped by JSON itself."""
    if isinstance(event, Failed):
        return {"event": "failed", "request": event.request, "error": event.message, "kind": type(event.error).__name__}
    return {"event": type(event).__name__.lower(), **asdict(event)}

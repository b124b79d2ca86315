"""One choice's way from engine events to deltas: reasoning apart from text, calls apart from both.

Knows no socket. The splitter and the parser are given; what a client may not see (reasoning it switched off) ends here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.chat.reasoning import Segment
from engine.types import Failed, Finished, Logprob, Piece, Prefilled, Prefilling, Tokens, Usage
from server.errors import from_engine
from server.generation.channel import Ledger
from server.tool_calls.base import ToolParser
from server.types import (
    Broken,
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Done,
    Progress,
    Provenance,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
)


class Splitter(Protocol):
    """Separates reasoning from the answer as text arrives; see engine/chat/template.py."""

    @property
    def kind(self) -> str: ...

    def feed(self, text: str) -> list[Segment]: ...

    def flush(self) -> list[Segment]: ...


class Plain:
    """The splitter of a prompt that has no reasoning (raw completions)."""

    kind = "answer"

    def feed(self, text: str) -> list[Segment]:
        return [Segment("answer", text, 0)] if text else []

    def flush(self) -> list[Segment]:
        return []


def merged(deltas: list[Delta]) -> list[Delta]:
    """One delta for neighbours of a kind: a round's tokens travel together."""
    out: list[Delta] = []
    for delta in deltas:
        last = out[-1] if out else None
        if isinstance(delta, Text) and isinstance(last, Text):
            out[-1] = Text(last.text + delta.text, last.logprobs + delta.logprobs)
        elif isinstance(delta, Reasoning) and isinstance(last, Reasoning):
            out[-1] = Reasoning(last.text + delta.text)
        elif isinstance(delta, CallArguments) and isinstance(last, CallArguments) and last.index == delta.index:
            out[-1] = CallArguments(delta.index, last.text + delta.text)
        else:
            out.append(delta)
    return out


class Choice:
    """The state of one choice. `take` turns each event into deltas; the last ones are Done or Broken."""

    def __init__(
        self,
        splitter: Splitter,
        ledger: Ledger,
        *,
        parser: ToolParser | None = None,
        hide_reasoning: bool = False,
        entry: Callable[[Logprob], TokenLogprob] | None = None,
        one_call: bool = False,
    ) -> None:
        self._splitter = splitter
        self._parser = parser
        self._ledger = ledger
        self._hide = hide_reasoning
        self._entry = entry
        self._one_call = one_call
        self._held: list[TokenLogprob] = []
        self._queued_ms = 0.0
        self._started = False
        self._calls = 0
        self._reasoning_tokens = 0
        self.satisfied = False
        """One call was allowed and it is complete: the engine may stop."""
        self.over = False

    def take(self, event: Prefilling | Prefilled | Tokens | Finished | Failed) -> list[Delta]:
        if self.over:
            return []
        match event:
            case Prefilling():
                return [*self._start(event.total, event.done), Progress(event.done, event.total)]
            case Prefilled():
                self._queued_ms = event.queued_ms
                return [*self._start(event.tokens, event.cached), Progress(event.tokens, event.tokens, event.cached)]
            case Tokens():
                return merged([d for piece in event.pieces for d in self._piece(piece)])
            case Finished():
                return self._finish(event)
            case Failed():
                self.over = True
                return [Broken(from_engine(event.error))]

    def _start(self, prompt: int, cached: int) -> list[Delta]:
        if self._started:
            return []
        self._started = True
        return [Started(prompt, cached)]

    def _piece(self, piece: Piece) -> list[Delta]:
        if self.satisfied:
            return []
        if self._entry is not None and (found := self._ledger.logprobs.pop(piece.position, None)) is not None:
            self._held.append(self._entry(found))
        deltas = self._deltas(self._splitter.feed(piece.text))
        if self._splitter.kind == "reasoning" or any(isinstance(d, Reasoning) for d in deltas):
            self._reasoning_tokens += 1
        shown: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, CallEnd):
                self._calls += 1
                self.satisfied = self._one_call
            elif isinstance(delta, CallStart) and self.satisfied:
                break
            shown.append(delta)
        return self._with_logprobs(shown)

    def _deltas(self, parts: list[Segment]) -> list[Delta]:
        out: list[Delta] = []
        for part in parts:
            if part.kind == "reasoning":
                out.append(Reasoning(part.text))
            elif self._parser is not None:
                out += self._parser.feed(part.text)
            elif part.text:
                out.append(Text(part.text))
        return out

    def _with_logprobs(self, deltas: list[Delta]) -> list[Delta]:
        """Entries wait until text appears that they belong to; entries of markup and reasoning belong to none."""
        visible = [d for d in deltas if not (isinstance(d, Reasoning) and self._hide)]
        if self._entry is None or not deltas:
            return visible
        held, self._held = tuple(self._held), []
        for i, delta in enumerate(visible):
            if isinstance(delta, Text):
                visible[i] = Text(delta.text, held)
                break
        return visible

    def _finish(self, event: Finished) -> list[Delta]:
        self.over = True
        deltas: list[Delta] = []
        if not self.satisfied:
            deltas = self._deltas(self._splitter.flush())
            if self._parser is not None:
                deltas += self._parser.finish()
            self._calls += sum(isinstance(d, CallEnd) for d in deltas)
            deltas = self._with_logprobs(deltas)
        return [*self._start(event.usage.prompt, event.usage.cached), *deltas, self._done(event)]

    def _done(self, event: Finished) -> Done:
        reason, stop = "stop", None
        if event.reason in ("length", "context"):
            reason = "length"
        elif self._calls:
            reason = "tool_calls"
        elif event.reason == "cancel":
            reason = "cancel"
        elif isinstance(event.stop, str):
            reason, stop = "stop_sequence", event.stop
        return Done(reason, event.usage, stop, self._provenance(event.usage), self._reasoning_tokens)  # type: ignore[arg-type]  # narrowed above

    def _provenance(self, usage: Usage) -> Provenance:
        ledger = self._ledger
        return Provenance(
            drafter=ledger.drafter,
            rounds=ledger.rounds,
            drafted=ledger.drafted,
            accepted=ledger.accepted,
            tokens_per_second=usage.completion / usage.decode_ms * 1e3 if usage.decode_ms > 0 else 0.0,
            prefill_ms=usage.prefill_ms,
            queued_ms=self._queued_ms,
            runs=tuple(ledger.runs),
        )

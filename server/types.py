"""The internal request and the deltas that answer it: what all dialects translate to and from.

Messages are in the shape that chat templates read (role, content, tool_calls, reasoning_content). Knows no dialect, no
socket and no engine beyond its value types.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.types import Sampling, Source, Usage
from server.errors import ApiError

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    namespace: str | None = None
    """Outer name of a nested tool; `name` is then the joined name that the model sees."""

    def template(self) -> dict[str, Any]:
        """The shape that chat templates expect."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters) or {"type": "object", "properties": {}},
            },
        }


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Format:
    """A promise about the whole answer text."""

    kind: Literal["json", "schema", "regex", "lark", "choice"]
    value: Any = None
    param: str = "structured_outputs"
    """Where in the request it stands, for refusals."""


@dataclass(frozen=True, slots=True)
class Image:
    data: bytes
    media_type: str = ""


@dataclass(slots=True, kw_only=True)
class Chat:
    """One request for an answer, whatever the dialect."""

    model: str = ""
    messages: list[Message] = field(default_factory=list[Message])
    prompt: str | list[int] | None = None
    """Raw text or ids in place of messages (completions)."""
    prompts: tuple[str | list[int], ...] = ()
    """Several of them, each of which is answered `n` times; empty: the one in `prompt`."""
    suffix: str = ""
    """What comes behind the answer (fill in the middle)."""
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = ToolChoice()
    format: Format | None = None
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `Sampling` that the request gave; the others come from the server's defaults."""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    effort: str | None = None
    final: Literal["", "continue", "header", "turn"] = ""
    """What the prompt ends in; empty: the last message where an answer begins there, else the next one's header."""
    template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    images: list[Image] = field(default_factory=list[Image])
    drafter: str | None = None
    cap: int | None = None
    stream: bool = False
    include_usage: bool = False
    progress: bool = False
    """Whether the client asked for prefill progress in the stream."""
    news: Literal["all", "first", "none"] = "none"
    """Which news of a prompt being read its renderer shows."""
    call_prefix: str = "call_"
    """Begins the ids of tool calls."""
    provenance: bool = False
    """Whether the client asked for the x_dspark block."""
    conversation: str = ""
    """What the client calls the conversation; empty when it does not say."""
    echo: Any = None
    """What the renderer wants to remember of the request (dialect-private)."""
    law: Sampling = field(default_factory=Sampling)
    """How it is sampled, once that is decided."""

    @property
    def choices(self) -> int:
        """Answers in all: those of the first prompt, then those of the next."""
        return self.n * max(1, len(self.prompts))


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    text: str
    bytes: tuple[int, ...]
    logprob: float
    top: tuple[tuple[str, tuple[int, ...], float], ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the answer's tokens came from and how fast: the x_dspark block."""

    drafter: str = "none"
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens_per_second: float = 0.0
    prefill_ms: float = 0.0
    queued_ms: float = 0.0
    runs: tuple[tuple[Source, int], ...] = ()
    """Run lengths over the delivered tokens."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "acceptance": round(self.accepted / self.drafted, 4) if self.drafted else None,
            "tokens_per_second": round(self.tokens_per_second, 2),
            "prefill_ms": round(self.prefill_ms, 2),
            "queued_ms": round(self.queued_ms, 2),
            "sources": [[source.value, count] for source, count in self.runs],
        }


# What answers a request -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt was matched against the cache; counts are final."""

    prompt: int
    cached: int


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CallStart:
    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call's arguments are complete. A call cut by the length limit has none."""

    index: int


@dataclass(frozen=True, slots=True)
class Done:
    reason: Literal["stop", "stop_sequence", "length", "tool_calls", "cancel"]
    usage: Usage
    stop: str | None = None
    provenance: Provenance | None = None
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Broken:
    error: ApiError


Delta = Progress | Started | Reasoning | Text | CallStart | CallArguments | CallEnd | Done | Broken


@dataclass(slots=True)
class Block:
    """One stretch of an answer, in order."""

    kind: Literal["reasoning", "text", "call"]
    text: str = ""
    id: str = ""
    name: str = ""
    complete: bool = True


@dataclass(slots=True)
class Answer:
    """A whole answer, collected from its deltas; the non-streamed dialects render this."""

    blocks: list[Block] = field(default_factory=list[Block])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    done: Done | None = None

    def add(self, delta: Delta) -> None:
        match delta:
            case Reasoning(text):
                self._append("reasoning", text)
            case Text(text, logprobs):
                self._append("text", text)
                self.logprobs += logprobs
            case CallStart(_, call, name):
                self.blocks.append(Block("call", id=call, name=name, complete=False))
            case CallArguments(index, text):
                self.calls(all=True)[index].text += text
            case CallEnd(index):
                self.calls(all=True)[index].complete = True
            case Done():
                self.done = delta
            case _:
                pass

    def _append(self, kind: Literal["reasoning", "text"], text: str) -> None:
        if not text:
            return
        if not self.blocks or self.blocks[-1].kind != kind:
            self.blocks.append(Block(kind))
        self.blocks[-1].text += text

    def calls(self, *, all: bool = False) -> list[Block]:
        return [b for b in self.blocks if b.kind == "call" and (all or b.complete)]

    @property
    def text(self) -> str:
        return "".join(b.text for b in self.blocks if b.kind == "text")

    @property
    def reasoning(self) -> str:
        return "".join(b.text for b in self.blocks if b.kind == "reasoning")


def fresh_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"

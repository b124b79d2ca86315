"""Types that cross folders: requests, proposals, rounds and the events that leave the engine.

Knows no model, no screen and no socket, and imports nothing heavy at run time: a front end can be built, and tested,
against these types alone. Arrays appear only as annotations.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from engine.types.sampling import Sampling as Sampling

if TYPE_CHECKING:
    import mlx.core as mx


class Source(enum.StrEnum):
    """Where a committed token came from. The value is the name used in files, JSON and theme variables."""

    TARGET = "target"
    """Sampled by the target itself: the replacement after a rejection, the bonus after a full accept, a plain step."""
    DRAFT = "draft"
    """Proposed by a learned drafter (DSpark, DFlash) and accepted by the target."""
    LOOKUP = "lookup"
    """Copied from the context by n-gram lookup and accepted by the target."""


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """One line of the drafter list."""

    name: str
    source: Source
    available: bool = True
    reason: str = ""
    """Why it is not available, for a person."""
    detail: str = ""
    """What to know about one that is available, for a person: that it is read wrongly, or says nothing."""


class Processor(Protocol):
    """One change of the logits of one sequence. Kept for the life of a request; told of every committed token."""

    needs_draft: bool
    """True when `rows` and `trim` need the draft's ids on the host (a grammar). Costs a second evaluation a round, so
    only requests that ask for it pay. False: drafts stay on the device."""

    def trim(self, drafts: Sequence[int]) -> int:
        """How many leading drafts can be committed at all; the rest is not verified. Called only with needs_draft."""
        ...

    def rows(self, logits: mx.array, drafts: mx.array) -> mx.array:
        """logits [K+1, V] float32, drafts [K] int32 -> logits [K+1, V]. Row i follows history + drafts[:i]."""
        ...

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens were delivered, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Media:
    """A picture in a prompt."""

    key: str
    """Hash of its content."""
    start: int
    """Position of its first row, the mark before it."""
    rows: int
    """Positions that it takes, with the marks before and after it."""


class StopScope(Protocol):
    """Which of a generated text is looked at for stop strings; see engine/chat/stop_scope.py."""

    @property
    def settled(self) -> int:
        """Characters from the beginning on of which it is known whether they count."""
        ...

    def feed(self, text: str) -> list[tuple[int, str]]:
        """Runs of text that count, as they become certain, each with its offset in the whole."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One generation. Token ids in, events out; templates and tools are a front end's business."""

    prompt: Sequence[int]
    """Token ids, at least one."""
    max_tokens: int = 2048
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    """Stop strings; the text, the ids, the usage and the state end before the first one found."""
    stop_scope: Callable[[], StopScope] | None = None
    """Makes what decides, for one generation, which of its text stop strings are looked for in; None: all of it."""
    stop_ids: frozenset[int] | None = None
    """None: the target's own stop ids. An empty set: never stop on a token."""
    logprobs: int | None = None
    """None: none. n >= 0: the log probability of each token and of the n best alternatives, from raw target logits."""
    drafter: str | None = None
    """Name of a loaded drafter; None is the engine's current one."""
    cap: int | None = None
    """Draft length: None lets the policy choose, 0 is plain decoding, n pins it."""
    processors: tuple[Processor, ...] = ()
    """Further changes of the logits, such as a grammar; see engine/sampling/logits_processors.py."""
    embeddings: Any = None
    """Input embeddings [1, T, H] in place of the prompt's own (pictures); the ids then stand for cache keys."""
    media: tuple[Media, ...] = ()
    """Pictures in the prompt, in order: all ids of theirs look alike, so that the prefix cache tells them apart by
    content."""
    boundaries: tuple[int, ...] = ()
    """Prompt lengths worth a prefix-cache checkpoint (stable boundary, end of the system prompt)."""
    remember: bool = True
    """Whether the prefix cache may serve and keep this request."""
    conversation: str = ""
    """Requests of one conversation share what is learned of a drafter's acceptance; others start from the pair's."""
    id: str = ""
    """Set by submit when empty; in every event of this request."""


# What a drafter hands to the verifier ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DenseQ:
    """q as full rows: probs [K, V] float32, row i the exact law that draft i was drawn from."""

    probs: mx.array


@dataclass(frozen=True, slots=True)
class SparseQ:
    """q on S candidates: ids [K, S] int32 target ids, probs [K, S] float32; zero elsewhere."""

    ids: mx.array
    probs: mx.array


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens for one round of one sequence. Length 0 is a plain step."""

    tokens: mx.array
    """[K] int32, target ids. May be lazy: the length is known on the host, the values need not be."""
    source: Source = Source.DRAFT
    q: DenseQ | SparseQ | None = None
    """None is a point mass: the drafter is deterministic, or acceptance is by equality."""
    confidence: mx.array | None = None
    """[K] float32, the drafter's own estimate of conditional acceptance."""
    drafter: str = ""
    sound: mx.array | None = None
    """[K] bool: whether the drafter's own numbers for draft i were numbers. None: nobody looked, which is right where
    q tells. Must not depend on draft i where there is a q."""

    def __len__(self) -> int:
        return int(self.tokens.shape[0])


# What leaves the engine -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log probabilities of one committed token, from the target's raw logits (natural log)."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """(token, logprob), best first."""


@dataclass(frozen=True, slots=True)
class Prefilling:
    """Progress of a prompt being read."""

    request: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the state; the first round follows."""

    request: str
    tokens: int
    """Prompt length."""
    cached: int
    """Prompt tokens served from the prefix cache."""
    ms: float
    """Time spent on restore and prefill."""
    queued_ms: float = 0.0
    hit: Literal["miss", "exact", "boundary", "anchor", "rung", "branch", "turn", "disk"] = "miss"
    restore_ms: float = 0.0
    saved_ms: float = 0.0
    """What prefilling the cached tokens would have cost at the measured prefill rate; 0 when not measured."""


@dataclass(frozen=True, slots=True)
class Round:
    """One pass of the decode loop over one sequence: the single record that colours, ribbon, panels and metrics
    derive from, so that they cannot disagree."""

    request: str
    index: int
    """0 is the round that produced the first token, from the prefill's last row; it proposes nothing."""
    start: int
    """Position of the first committed token of this round in prompt + output."""
    tokens: tuple[int, ...]
    """Committed tokens, in order; never empty. Cut where a stop or the budget cut it."""
    drafted: tuple[int, ...] = ()
    """What was proposed."""
    accepted: int = 0
    """How many of `drafted` are in `tokens`: tokens[:accepted] == drafted[:accepted]."""
    source: Source = Source.TARGET
    """Source of the accepted drafts; what follows them is always TARGET."""
    drafter: str = "none"
    """Who proposed; where nobody did, the chain."""
    cap: int = 0
    """Draft length the policy allowed."""
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    """Verify, accept and the synchronisation."""
    host_ms: float = 0.0
    """Everything else of the round."""
    width: int = 1
    """Rows in the verify forward."""
    rows: int = 1
    """Sequences that shared the forward."""
    depth: int = 0
    """Context length before the round."""
    logprobs: tuple[Logprob, ...] = ()
    """One per committed token when asked for."""
    chain: str = ""
    """The chain in charge, which is what a person switches; "lookup+dspark" asks lookup first."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Source of each committed token."""
        return (self.source,) * self.accepted + (Source.TARGET,) * (len(self.tokens) - self.accepted)

    @property
    def ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.host_ms


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that one token completes, possibly empty (half a character, or held back for a stop string)."""

    text: str
    source: Source
    token: int
    position: int
    """Position of the token in prompt + output."""
    round: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Text that is safe to show: whole characters, no part of a stop string. Pieces come in order, one per token."""

    request: str
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "".join(p.text for p in self.pieces)


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts over one request; `completion` is exactly the number of ids delivered."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    """From the end of the prefill to the last round."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that went well, or was cancelled by its owner."""

    request: str
    reason: Literal["stop", "length", "cancel", "context"]
    """stop: a stop id or string; length: max_tokens; context: the window is full; cancel: asked for."""
    usage: Usage
    tokens: tuple[int, ...] = ()
    """All ids delivered, the stop id included when one ended it."""
    text: str = ""
    stop: str | int | None = None
    """The stop string or id that ended it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that went wrong. What was delivered before stays valid."""

    request: str
    error: Exception
    usage: Usage = field(default_factory=Usage)

    @property
    def message(self) -> str:
        return str(self.error) or type(self.error).__name__


Event = Prefilling | Prefilled | Round | Tokens | Finished | Failed

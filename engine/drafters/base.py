"""The contract of a drafter: proposes, and is told what was committed. And what declares a kind of learned drafters.

A drafter is immutable after load and serves many sequences; what it remembers of one sequence is its context. It knows
the target only through taps and, where it borrows them, the raw embedding and head of a `Lender`. Knows no kind: those
are rows of `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.nn.tensors import Shapes, Tensors
from engine.sampling.sampler import RowSampler
from engine.types import Proposal, Source


class ContextSnapshot(Protocol):
    """Immutable copy of a drafter context, kept by the prefix cache beside the target's snapshot."""

    @property
    def length(self) -> int:
        """Committed positions covered."""
        ...

    @property
    def nbytes(self) -> int: ...


class Context(Protocol):
    """What a drafter remembers of one sequence: positions [0, length), or its last window of them."""

    @property
    def length(self) -> int: ...

    def snapshot(self) -> ContextSnapshot: ...

    def restore(self, snap: ContextSnapshot, length: int) -> None:
        """Become the snapshot cut to `length` <= snap.length. Never mutates it. May come back with fewer rows than it
        would like (a window), never with wrong ones."""
        ...

    def arrays(self) -> list[mx.array]:
        """What must be evaluated for the context to be real; empty for host-side contexts."""
        ...


C = TypeVar("C", bound=Context)


class Drafter(Protocol[C]):
    """Proposes draft tokens. `observe` is called once for every committed row, in order, whoever proposed."""

    name: str
    source: Source
    taps: tuple[int, ...]
    """Target layers that it wants tapped, ascending; empty when it needs none."""
    max_draft: int
    """Longest proposal that it can make."""

    def new_context(self) -> C: ...

    def context_bytes(self, length: int) -> int:
        """What a context of so many positions takes: an estimate, for deciding which requests fit together."""
        ...

    def observe(self, context: C, taps: mx.array | None, start: int, ids: Sequence[int]) -> None:
        """Rows that are now in the target's state: ids[i] at position start + i, with tapped features
        taps [n, m*H] (None when `taps` is empty). start == context.length. Builds graph only, may schedule it, must not
        wait for it; work that only a proposal needs is best left until then."""
        ...

    def silent(self, context: C, pending: int) -> bool:
        """Whether it is known without drafting that nothing would follow `pending`. Cheap; changes nothing."""
        ...

    def propose(self, context: C, pending: int, k: int, sampler: RowSampler) -> Proposal:
        """At most k >= 1 tokens to follow `pending` (the last committed token, whose row is not in the state yet, at
        position context.length). Greedy when sampler.greedy; otherwise draws through `sampler.draw`, so that q is
        exactly what was drawn from. Must not evaluate, except to truncate by confidence. Must not change the
        context."""
        ...


class DraftsTogether(Drafter[C], Protocol[C]):
    """A drafter whose proposals for several sequences cost less together: it says so by having `propose_rows`."""

    def propose_rows(
        self, contexts: Sequence[C], pendings: Sequence[int], ks: Sequence[int], samplers: Sequence[RowSampler]
    ) -> list[Proposal]:
        """As `propose`, for each of several sequences. What a sampler draws depends on its own row alone."""
        ...


# What a learned drafter is made from ---------------------------------------------------------------------------------


class LenderFacts(Protocol):
    """The part of a target's facts that a drafter is checked against."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def raw(self) -> Mapping[str, object]: ...


class Lender(Protocol):
    """Bare matrices: no scale, no norm, no multiplier, no softcap. The drafter applies its own."""

    @property
    def spec(self) -> LenderFacts: ...

    def raw_logits(self, hidden: mx.array) -> mx.array: ...

    def raw_embed(self, ids: mx.array) -> mx.array: ...


class LearnedDrafter(Drafter[Any], Protocol):
    """A drafter that was read from a file."""

    config: DrafterConfig
    fingerprint: str
    """Of its config and weights: what is remembered under another one is not its own."""
    threshold: float
    """Confidence below which drafting stops, where it estimates one; 0: never look."""

    def quantize(self, bits: int) -> None:
        """Store its matrices in fewer bits; at load, once."""
        ...


class Build(Protocol):
    """Makes a drafter whose config fits the target and whose tensors are those that it expects."""

    def __call__(
        self, config: DrafterConfig, tensors: Tensors, lender: Lender, *, name: str, context_rows: int | None
    ) -> LearnedDrafter: ...


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """One kind of learned drafters; a constant `KIND` in its own file, and a row of `registry.KINDS`."""

    name: str
    build: Build
    expected_tensors: Callable[[DrafterConfig, Callable[[str], bool], int], Shapes]
    """Name and shape of every tensor that a drafter of this config must have. Optional parts are expected when the
    file has (the second argument) their first tensor; the third is the width of one tap."""

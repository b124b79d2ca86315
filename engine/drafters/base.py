"""The contract of a drafter: proposes, and is told what was committed.

Siblings: none, lookup, dspark, dflash, chain. A drafter is immutable after load and serves many sequences; what it
remembers of one sequence is its context. It knows the target only through taps and, where it borrows them, the raw
embedding and head given to it at load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import mlx.core as mx

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

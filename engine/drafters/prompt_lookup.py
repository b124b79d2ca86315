"""Drafter-free drafting: propose what followed the last occurrence of the current suffix (prompt lookup).

Saxena, "Prompt lookup decoding", 2023. The index is a rolling hash per n-gram length, so that a token costs a few
integer operations, and every hit is compared token by token before it is believed. Knows only this sequence's own
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.sampling.sampler import RowSampler
from engine.types import Proposal, Source

_MOD = (1 << 61) - 1
_BASE = 1_000_003


INDEX_BYTES = 120
"""What a token takes for each n of the index: its part of the table and the numbers in it."""


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """Lengths in tokens."""

    min_n: int = 3
    """Shortest suffix worth trusting; 4 beside a learned drafter."""
    max_n: int = 4
    base_draft: int = 6
    """Draft length of an ordinary match."""
    long_draft: int = 32
    """Longest draft of a long match; a match of m tokens earns min(long_draft, 2 m)."""
    long_match: int = 8
    """Match length from which the draft grows."""
    probe_every: int = 8
    """While long drafts are parked, one is tried again after this many ordinary ones."""


class LongDraftGate:
    """Parks long drafts after two in a row of which less than half was accepted, and probes now and then."""

    def __init__(self, probe_every: int) -> None:
        self._probe_every = probe_every
        self._misses = 0
        self._ordinary = 0

    @property
    def parked(self) -> bool:
        return self._misses >= 2

    def allows(self) -> bool:
        """Whether a long draft may be made now."""
        return not self.parked or self._ordinary >= self._probe_every

    def learn(self, drafted: int, accepted: int, base: int) -> None:
        """Outcome of one lookup round; lengths up to `base` are ordinary and only count towards the next probe."""
        if drafted <= base:
            self._ordinary += 1
            return
        self._ordinary = 0
        self._misses = 0 if 2 * accepted >= drafted else self._misses + 1


@dataclass(frozen=True, slots=True)
class LookupSnapshot:
    """The tokens alone: the index is rebuilt as fast as it is copied."""

    tokens: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        return 4 * len(self.tokens)


class LookupContext:
    """Tokens of one sequence and, for each n, where each n-gram last ended."""

    def __init__(self, settings: LookupSettings) -> None:
        self.settings = settings
        self.gate = LongDraftGate(settings.probe_every)
        self._reset()

    def _reset(self) -> None:
        self.tokens: list[int] = []
        self._hashes = [0]
        """Prefix hashes: _hashes[i] covers tokens[:i]."""
        sizes = range(self.settings.min_n, self.settings.max_n + 1)
        self._ends: dict[int, dict[int, int]] = {n: {} for n in sizes}
        self._powers = {n: pow(_BASE, n, _MOD) for n in sizes}
        self.last: tuple[int, tuple[int, ...]] | None = None
        """Where the last proposal began, and its tokens: judged by what is observed next."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    def append(self, token: int) -> None:
        """Add a token, indexing the n-grams that end *before* it: a suffix can then never find itself."""
        end = len(self.tokens)
        for n, ends in self._ends.items():
            if end >= n:
                ends[self._gram(end, n)] = end
        self.tokens.append(token)
        self._hashes.append((self._hashes[-1] * _BASE + token + 1) % _MOD)

    def _gram(self, end: int, n: int) -> int:
        return (self._hashes[end] - self._hashes[end - n] * self._powers[n]) % _MOD

    def match(self, pending: int) -> tuple[int, int]:
        """(end of the best earlier occurrence of the suffix tokens + [pending], its n); n == 0 means none."""
        self.append(pending)
        try:
            end = len(self.tokens)
            for n in range(self.settings.max_n, self.settings.min_n - 1, -1):
                if end <= n:
                    continue
                found = self._ends[n].get(self._gram(end, n), 0)
                if found and self.tokens[found - n : found] == self.tokens[end - n :]:
                    return found, n
            return 0, 0
        finally:
            self._pop()

    def _pop(self) -> None:
        # The grams that `append` indexed end before the popped token: they stay true.
        self.tokens.pop()
        self._hashes.pop()

    def extent(self, end: int, pending: int, limit: int) -> int:
        """How many tokens before `end` equal the tail tokens + [pending], up to `limit`."""
        if self.tokens[end - 1] != pending:
            return 0
        m = 1
        while m < limit and m < end and self.tokens[end - 1 - m] == self.tokens[len(self.tokens) - m]:
            m += 1
        return m

    def snapshot(self) -> LookupSnapshot:
        return LookupSnapshot(tuple(self.tokens))

    def restore(self, snap: LookupSnapshot, length: int) -> None:
        self._reset()
        for token in snap.tokens[:length]:
            self.append(token)

    def arrays(self) -> list[mx.array]:
        return []


class Lookup:
    """The n-gram drafter. Deterministic, so its q is a point mass."""

    def __init__(self, settings: LookupSettings | None = None, name: str = "lookup") -> None:
        self.settings = settings or LookupSettings()
        self.name = name
        self.source = Source.LOOKUP
        self.taps: tuple[int, ...] = ()
        self.max_draft = max(self.settings.base_draft, self.settings.long_draft)

    def new_context(self) -> LookupContext:
        return LookupContext(self.settings)

    def context_bytes(self, length: int) -> int:
        return length * INDEX_BYTES * (self.settings.max_n - self.settings.min_n + 1)

    def observe(self, context: LookupContext, taps: mx.array | None, start: int, ids: Sequence[int]) -> None:
        if start != context.length:
            raise ValueError(f"lookup covers {context.length} tokens and was given position {start}")
        for token in ids:
            context.append(token)
        self._judge(context)

    def _judge(self, context: LookupContext) -> None:
        if context.last is None:
            return
        begin, drafted = context.last
        context.last = None
        actual = context.tokens[begin : begin + len(drafted)]
        accepted = 0
        while accepted < len(actual) and actual[accepted] == drafted[accepted]:
            accepted += 1
        context.gate.learn(len(drafted), accepted, self.settings.base_draft)

    def draft(self, context: LookupContext, pending: int, k: int) -> list[int]:
        """At most k tokens to follow `pending`; empty when nothing matches."""
        settings = self.settings
        end, n = context.match(pending)
        if not n:
            return []
        length = settings.base_draft
        if settings.long_draft > settings.base_draft and context.gate.allows():
            m = context.extent(end, pending, settings.long_draft)
            if m >= settings.long_match:
                length = min(settings.long_draft, 2 * m)
        tail = [*context.tokens[end : end + min(k, length)], pending]
        return tail[: min(k, length, context.length + 1 - end)]

    def silent(self, context: LookupContext, pending: int) -> bool:
        return context.match(pending)[1] == 0

    def propose(self, context: LookupContext, pending: int, k: int, sampler: RowSampler) -> Proposal:
        drafted = self.draft(context, pending, k)
        context.last = (context.length + 1, tuple(drafted)) if drafted else None
        return Proposal(mx.array(drafted, dtype=mx.int32), Source.LOOKUP, drafter=self.name)

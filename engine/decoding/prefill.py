"""Reading a prompt into a state, chunk by chunk, from wherever the prefix cache can start.

One `step` is one chunk, so that a scheduler can decode other rows, report progress or cancel in between. Knows no queue
and no template.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import mlx.core as mx

from engine import backend
from engine.decoding.loop import observe
from engine.decoding.sequence import Sequence
from engine.drafters.backfill import backfill
from engine.drafters.base import Drafter
from engine.kv_cache.base import Snapshot, State
from engine.prefix_cache.cache import Hit, Mark, Match, PrefixCache
from engine.targets.base import Target
from engine.types import Event, Prefilled, Prefilling

GPU_CHUNK = 2048
"""Attention kernels reach full speed at about this many rows (spec of the Metal backend)."""
CPU_CHUNK = 256
"""On the CPU a chunk takes long; progress and cancel come between chunks."""


def default_chunk() -> int:
    return CPU_CHUNK if backend.is_cpu() else GPU_CHUNK


class Prefill:
    """One prompt on its way into a state of one row."""

    def __init__(self, target: Target, sequence: Sequence, cache: PrefixCache | None, chunk: int) -> None:
        self.sequence = sequence
        self.state: State = target.new_state()
        self.position = 0
        self._target = target
        self._cache = cache if sequence.request.remember else None
        self._chunk = max(1, chunk)
        self._began = time.perf_counter()
        self._restore_ms = 0.0
        self._match: Match | None = None
        self._marks: list[Mark] = []
        self._hidden: mx.array | None = None
        self._overtaken = 0
        self._paused_at = 0.0

    def gives_way(self, tokens: int, ratio: int, times: int) -> bool:
        """Whether a prompt of so many tokens may be read first: little beside what is left here, and not too often."""
        return tokens * ratio <= len(self.sequence.tokens) - self.position and self._overtaken < times

    def pause(self) -> None:
        self._overtaken += 1
        self._paused_at = time.perf_counter()

    def resume(self) -> None:
        """The pause counts as waiting, not as reading."""
        self._began += time.perf_counter() - self._paused_at

    @property
    def key(self) -> str:
        """What the state depends on besides the tokens."""
        return self._target.spec.fingerprint

    @property
    def done(self) -> bool:
        return self._hidden is not None

    @property
    def hidden(self) -> mx.array:
        """[1, 1, H] of the prompt's last token, once done."""
        assert self._hidden is not None
        return self._hidden

    def start(self) -> list[Event]:
        """Restore what the prefix cache has. Always leaves at least one token to read."""
        sequence, tokens = self.sequence, self.sequence.cached_as
        if self._cache is not None:
            learned = sequence.chain.learned
            began = time.perf_counter()
            self._match = self._cache.match(tokens, self.key, learned.name if learned else "")
            if self._match is not None:
                self._restore(self._match)
                self._restore_ms = (time.perf_counter() - began) * 1e3
            trimmable = all(layer.kind == "append" for layer in self.state.layers)
            self._marks = self._cache.marks(
                tokens, self.position, sequence.request.boundaries, self.key, trimmable=trimmable
            )
        return [Prefilling(sequence.request.id, self.position, len(tokens))]

    def _restore(self, match: Match) -> None:
        sequence = self.sequence
        self.state.restore(match.snapshot, match.length)
        self.position = match.length
        for part in sequence.chain.parts:
            context = sequence.context(part)
            if part is sequence.chain.learned and match.context is not None:
                context.restore(match.context, match.length)
            catch_up(self._target, sequence, part, match.length, lambda: self.state.snapshot())

    def step(self, most: int | None = None) -> list[Event]:
        """Read one chunk, at most `most` tokens. The last one keeps the hidden row that the first token comes from."""
        sequence, total = self.sequence, len(self.sequence.tokens)
        chunk = self._chunk if most is None else max(1, min(most, self._chunk))
        end = min(self.position + chunk, total, *(m.at for m in self._marks if m.at > self.position))
        ids = sequence.tokens[self.position : end]
        embeddings = sequence.request.embeddings
        chain = sequence.chain
        with self.state.begin(len(ids), record=False) as transaction:
            body = self._target.body(
                mx.array([ids], dtype=mx.int32),
                self.state,
                chain.taps,
                None if embeddings is None else embeddings[:, self.position : end],
            )
            transaction.commit(len(ids))
        taps = None if body.taps is None else body.taps[0]
        observe(sequence, chain, taps, chain.taps, self.position, ids, self._target.spec.hidden_size)
        contexts = [a for part in chain.parts for a in sequence.context(part).arrays()]
        self.position = end
        if end == total:
            self._hidden = body.hidden[:, -1:]
            # The timing must cover the prefill, not only the building of its graph.
            mx.eval(self._hidden, self.state.arrays(), contexts)
            mx.clear_cache()
            return [self._finished()]
        mx.eval(self.state.arrays(), contexts)
        mx.clear_cache()
        self._remember()
        return [Prefilling(sequence.request.id, end, total)]

    def _remember(self) -> None:
        marks = [m for m in self._marks if m.at == self.position]
        if self._cache is not None and marks:
            self._store(marks[0].kind)

    def keep(self) -> None:
        """Keep what was read although the prompt will not be finished."""
        if self._cache is not None and self.position > (self._match.length if self._match else 0):
            self._store("rung")

    def _store(self, kind: Hit) -> None:
        assert self._cache is not None
        remember(self._cache, self._target, self.sequence, self.state, 0, self.position, kind)

    def _finished(self) -> Prefilled:
        sequence = self.sequence
        spent = (time.perf_counter() - self._began) * 1e3
        cached = self._match.length if self._match else 0
        saved = 0.0
        if self._cache is not None:
            self._cache.learn(self.key, self.position - cached, spent - self._restore_ms)
            saved = self._cache.saved_ms(self.key, cached) if cached else 0.0
            if all(layer.kind == "append" for layer in self.state.layers):
                self._store("boundary")
        sequence.usage = replace(sequence.usage, cached=cached, prefill_ms=spent)
        return Prefilled(
            sequence.request.id,
            tokens=self.position,
            cached=cached,
            ms=spent,
            queued_ms=(self._began - sequence.submitted) * 1e3,
            hit=self._match.kind if self._match else "miss",
            restore_ms=self._restore_ms,
            saved_ms=saved,
        )


def remember(
    cache: PrefixCache,
    target: Target,
    sequence: Sequence,
    state: State,
    row: int,
    length: int,
    kind: Hit,
) -> None:
    """Keep one row's state and the contexts of its chain for later requests."""
    contexts = {part.name: sequence.context(part).snapshot() for part in sequence.chain.parts if part.taps}
    cache.put(sequence.cached_as, length, target.spec.fingerprint, state.snapshot(row), contexts, kind=kind)


def catch_up(
    target: Target, sequence: Sequence, part: Drafter[Any], length: int, snapshot: Callable[[], Snapshot]
) -> None:
    """Bring a part that joins late up to `length` committed positions, without touching the live state.

    snapshot: the live state's, from which a learned part may re-read only the tail that it needs.
    """
    context = sequence.context(part)
    tokens: Seq[int] = sequence.tokens
    if context.length >= length:
        return
    if not part.taps:
        part.observe(context, None, context.length, tokens[context.length : length])
        return
    backfill(target, part, context, tokens[:length], snapshot(), embeddings=sequence.request.embeddings)

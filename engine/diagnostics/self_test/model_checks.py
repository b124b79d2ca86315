"""What is asked of every tiny model: reading in parts, widths, rollback, rows of a batch, the prefix cache.

Each check compares with the same model read in another way, or with its library's own forward. Knows no drafter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import mlx.core as mx

from engine.diagnostics.self_test.findings import Finding, Gauge
from engine.diagnostics.self_test.tiny_models import Precision
from engine.kv_cache.base import LayerState, Snapshot, State
from engine.kv_cache.sliding_window import WindowKV
from engine.prefix_cache.cache import Match, PrefixCache
from engine.targets.base import Target
from engine.targets.families.dense import MlxTarget
from engine.targets.self_check import feed, limit_of, probe

WIDEST = 16
PROMPT = 20
"""Past the edge of a window of 16."""
BLOCK = 6
IDS = 288
"""Ordinary ids: special ones stand behind them."""


def words(count: int, seed: int = 0) -> list[int]:
    """Varied ids."""
    return [(7 + 31 * i + 97 * seed + 13 * i * i) % IDS for i in range(count)]


@dataclass(frozen=True, eq=False)
class Subject:
    """A tiny model under test."""

    name: str
    precision: Precision
    target: MlxTarget

    @property
    def limit(self) -> float:
        return limit_of(self.precision.dtype, self.target.spec.experts is not None)

    def gauge(self) -> Gauge:
        return Gauge(self.limit)

    def read(self, ids: Sequence[int]) -> State:
        state = self.target.new_state()
        feed(self.target, state, ids, record=False)
        return state

    def resumed(self, snap: Snapshot, length: int | None = None) -> State:
        state = self.target.new_state()
        state.restore(snap, length)
        return state

    @cached_property
    def prompt(self) -> Snapshot:
        """The state after PROMPT tokens."""
        return self.read(words(PROMPT)).snapshot()

    def whole(self, ids: Sequence[int]) -> mx.array:
        """Logits [T, V] of all ids at once, by the library's own forward; by ours where its own has nothing like it."""
        if self.target.kv_bits:
            return feed(self.target, self.target.new_state(), ids, record=False)
        logits: mx.array = self.target.model(mx.array([list(ids)], dtype=mx.int32))[0]
        mx.eval(logits)
        return logits


Check = Callable[[Subject], Gauge]


def load_checks(subject: Subject) -> Gauge:
    """What the engine asks of every model that it loads."""
    gauge, verdict = subject.gauge(), probe(subject.target)
    for name, deviation in verdict.deviations.items():
        gauge.take(deviation, name)
    if verdict.offer != "all":
        gauge.fail(verdict.reason)
    return gauge


READING = ((37, 37), (BLOCK, 3), (1, 1), (1, 1), (8, 1), (16, 16), (4, 0), (4, 4), (BLOCK, 2), (1, 1), (24, 24), (1, 1))
"""(rows, of which true): the others are drafts that are refused."""


def reading(subject: Subject) -> Gauge:
    """A text in chunks, refused drafts and single steps, past every window and compaction, is the text at once."""
    gauge, text, state, at = subject.gauge(), words(sum(keep for _, keep in READING)), subject.target.new_state(), 0
    parts: list[mx.array] = []
    for width, keep in READING:
        ids = text[at : at + keep] + words(width - keep, seed=at)
        parts.append(feed(subject.target, state, ids, keep, record=keep < width)[:keep])
        at += keep
    expected, found = subject.whole(text), mx.concatenate(parts)
    gauge.compare(found, expected, f"all {at} rows")
    gauge.tokens(found, expected, subject.precision.dtype, "reading in parts")
    return gauge


def widths(subject: Subject) -> Gauge:
    """Rounds of 1 to 16 rows on top of the same state say the same of each row."""
    gauge, ids, dtype = subject.gauge(), words(WIDEST, seed=1), subject.precision.dtype
    state = subject.resumed(subject.prompt)
    single = mx.concatenate([feed(subject.target, state, [token]) for token in ids])
    state = subject.resumed(subject.prompt)
    for width in range(2, WIDEST + 1):
        logits = feed(subject.target, state, ids[:width], 0)
        gauge.compare(logits, single[:width], f"width {width}")
        gauge.tokens(logits, single[:width], dtype, f"width {width}")
    return gauge


def rollback(subject: Subject) -> Gauge:
    """After any part of a block was kept, states and what follows are those of a block of the kept rows alone."""
    gauge, drafts, after = subject.gauge(), words(BLOCK, seed=1), words(2, seed=2)
    for keep in range(BLOCK + 1):
        warm, cold = subject.resumed(subject.prompt), subject.resumed(subject.prompt)
        feed(subject.target, warm, drafts, keep)
        if keep:
            feed(subject.target, cold, drafts[:keep])
        for mine, other in zip(warm.layers, cold.layers, strict=True):
            for got, expected in zip(_remembered(mine), _remembered(other), strict=True):
                if mx.issubdtype(got.dtype, mx.floating):  # packed numbers have no distance
                    gauge.compare(got, expected, f"the {mine.kind} state after {keep} of {BLOCK} rows")
        got, expected = feed(subject.target, warm, after), feed(subject.target, cold, after)
        gauge.compare(got, expected, f"what follows {keep} of {BLOCK} rows")
        gauge.tokens(got, expected, subject.precision.dtype, f"after {keep} of {BLOCK} rows")
    return gauge


def _remembered(layer: LayerState) -> list[mx.array]:
    """The arrays of one sequence that later tokens see."""
    arrays = layer.snapshot(0).arrays()
    return [x[:, :, 1 - layer.window :] for x in arrays] if isinstance(layer, WindowKV) else arrays


def batch(subject: Subject) -> Gauge:
    """Sequences of different lengths that share rounds, keep different parts, and leave: each as if it were alone."""
    gauge, target, lengths = subject.gauge(), subject.target, (PROMPT + 1, 9, 40)
    texts = [words(n, seed=i) for i, n in enumerate(lengths)]
    alone = [subject.read(ids) for ids in texts]
    together = subject.read(texts[0])
    for ids in texts[1:]:
        together.extend(subject.read(ids))
    rows = [0, 1, 2]
    for number, (width, keeps, stay) in enumerate((((5), [2, 5, 0], [2, 0]), (1, [1, 1], [0, 1]), (3, [1, 3], [1]))):
        ids = [words(width, seed=10 + number + row) for row in rows]
        logits = _round(target, together, ids, keeps)
        for i, row in enumerate(rows):
            expected = feed(target, alone[row], ids[i], keeps[i])
            gauge.compare(logits[i], expected, f"row {row} of round {number + 1}")
            gauge.tokens(logits[i], expected, subject.precision.dtype, f"row {row} of round {number + 1}")
        together.select(stay)
        rows = [rows[i] for i in stay]
    return gauge


def _round(target: Target, state: State, ids: list[list[int]], keep: Sequence[int]) -> mx.array:
    """Logits [B, T, V] of one round of several sequences."""
    with state.begin(len(ids[0])) as round:
        logits = target.logits(target.body(mx.array(cast("list[Any]", ids), dtype=mx.int32), state).hidden)
        round.commit(keep)
    mx.eval(logits, state.arrays())
    return logits


SHARED, OWN, NEXT = 40, 24, 4
CHATS = 5
ROOM = (0.4, 0.55, 0.7)
"""Budgets, as a share of what all chats would take: the cache is full all the time."""


def prefix_cache(subject: Subject) -> Gauge:
    """Chats over one beginning in a cache that a part of them fills: what is served has the bits of what was read."""
    gauge, shared, after = subject.gauge(), words(SHARED), words(NEXT, seed=9)
    chats = [shared + words(OWN + 8 * i, seed=i + 1) for i in range(CHATS)]
    # The beginning is read once: read with other things behind it, it may differ by rounding.
    begun = subject.read(shared).snapshot()
    snaps = [_went_on(subject, begun, chat[SHARED:]) for chat in chats]
    roomy = PrefixCache(sum(snap.nbytes for snap in snaps) * 2)
    for chat, snap in zip(chats, snaps, strict=True):
        roomy.put(chat, len(chat), "", snap, kind="turn")
    size = roomy.stats().nbytes
    served = evicted = 0
    last: tuple[int, Match] | None = None
    for room in ROOM:
        cache = PrefixCache(int(size * room))
        for put in (*range(CHATS), *range(CHATS)):
            cache.put(chats[put], len(chats[put]), "", snaps[put], kind="turn")
            for i in {put, (put + 3) % CHATS}:
                match = cache.match([*chats[i], *after], "")
                if match is None:
                    continue
                served += 1
                last = i, match
                if snaps[i].trimmable_from <= match.length <= snaps[i].length:
                    where = f"{match.length} of {len(chats[i])} tokens served by a cache of {room:.0%}"
                    got = subject.resumed(match.snapshot, match.length)
                    _same_bits(gauge, got, subject.resumed(snaps[i], match.length), where)
        for sentence in cache.faults():
            gauge.fail(sentence)
        evicted += cache.stats().evicted
    if last is not None:
        i, match = last
        ids = [*chats[i], *after]
        got = feed(subject.target, subject.resumed(match.snapshot, match.length), ids[match.length :], record=False)
        gauge.compare(got, subject.whole(ids)[match.length :], f"what follows {match.length} tokens served")
    if not served or not evicted:
        gauge.fail(f"{served} hits and {evicted} evictions: the cache was not put to the test")
    return gauge


def _went_on(subject: Subject, snap: Snapshot, ids: Sequence[int]) -> Snapshot:
    state = subject.resumed(snap)
    feed(subject.target, state, ids, record=False)
    return state.snapshot()


def _same_bits(gauge: Gauge, got: State, expected: State, where: str) -> None:
    """What was copied out and in again has changed in no bit."""
    for mine, other in zip(got.layers, expected.layers, strict=True):
        for a, b in zip(_remembered(mine), _remembered(other), strict=True):
            gauge.same(a, b, f"the {mine.kind} state of {where} is not the one that was put in")


def devices(subject: Subject) -> Gauge:
    """A GPU computes what the CPU beside it computes."""
    gauge, ids = subject.gauge(), words(PROMPT)
    here = subject.whole(ids)
    with mx.stream(mx.cpu):
        there = subject.whole(ids)
    gauge.compare(here, there, "against the CPU")
    return gauge


CHECKS: dict[str, Check] = {
    "rollback": rollback,
    "widths": widths,
    "batch": batch,
    "prefix cache": prefix_cache,
    "reading": reading,
    "load": load_checks,
}
"""From parts to the whole: the first that fails says most."""


def run(name: str, subject: Subject) -> Finding:
    """One of CHECKS, or `devices`."""
    if name != "devices":
        return CHECKS[name](subject).finding(name, subject.name, subject.precision.name)
    if subject.precision.dtype != mx.float32:
        return Finding(name, subject.name, subject.precision.name, tried=False, detail="in float32 only")
    try:
        return devices(subject).finding(name, subject.name, subject.precision.name)
    except (RuntimeError, ValueError) as error:  # a build of MLX without a CPU backend, or memory that is not shared
        why = " ".join(str(error).split())[:200]
        return Finding(name, subject.name, subject.precision.name, tried=False, detail=f"not on the CPU here: {why}")

"""What the cache gives back is right, fits the budget, and is never changed afterwards."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.prefix_cache.blocks import SPAN
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.eviction import SHORT, default_budget
from engine.prefix_cache.marks import Mark
from tests.cases import examples
from tests.engine.prefix_cache.made import ToyContext, check, snapshot

KINDS = [("append",), ("append", "recurrent"), ("recurrent",), ("append", "window"), ("append", "window", "recurrent")]
SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def put(
    cache: PrefixCache, tokens: Sequence[int], kinds: Sequence[str] = ("append",), key: str = "k", **kw: object
) -> bool:
    return cache.put(tokens, len(tokens), key, snapshot(tokens, kinds), **kw)  # pyright: ignore[reportArgumentType]


class CacheAgainstDictionary(RuleBasedStateMachine):
    """Ample budget: everything that was put is found. Tight budget: what is found is right and the limit holds."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: tuple[str, ...] = ("append",)
        self.tight = False
        self.lossless = True
        self.cache = PrefixCache(1 << 20)
        self.kept: dict[tuple[str, tuple[int, ...]], None] = {}

    @rule(kinds=st.sampled_from(KINDS), tight=st.booleans())
    def restart(self, kinds: tuple[str, ...], tight: bool) -> None:
        self.kinds, self.tight, self.lossless = kinds, tight, not tight
        self.cache = PrefixCache(600 if tight else 1 << 20)
        self.kept = {}

    @rule(tokens=SEQUENCES, key=st.sampled_from("ab"))
    def put(self, tokens: list[int], key: str) -> None:
        if put(self.cache, tokens, self.kinds, key):
            self.kept[key, tuple(tokens)] = None
        else:
            assert self.tight

    @rule(tokens=SEQUENCES, key=st.sampled_from("ab"))
    def match(self, tokens: list[int], key: str) -> None:
        found = self.cache.match(tokens, key)
        if found is not None:
            assert 0 < found.length < len(tokens)
            check(found.snapshot, tokens[: found.length], self.kinds)
        if not self.lossless:
            return
        ours = [k for other, k in self.kept if other == key]
        if set(self.kinds) == {"append"}:
            want = max((lcp(k, tokens[:-1]) for k in ours), default=0)
        else:
            want = max((len(k) for k in ours if len(k) < len(tokens) and list(k) == tokens[: len(k)]), default=0)
        got = 0 if found is None else found.length
        assert got == want if "window" not in self.kinds else got >= want

    @rule(level=st.sampled_from(["warn", "critical"]))
    def shed(self, level: str) -> None:
        before = self.cache.nbytes
        assert self.cache.shed(level) == before - self.cache.nbytes  # pyright: ignore[reportArgumentType]
        if level == "critical":
            assert self.cache.nbytes == 0
            self.kept = {}
        else:
            self.lossless = self.lossless and set(self.kinds) == {"append"}

    @invariant()
    def fits(self) -> None:
        stats = self.cache.stats()
        assert stats.nbytes == self.cache.nbytes <= stats.budget


def lcp(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


TestCache = CacheAgainstDictionary.TestCase
TestCache.settings = examples(60, stateful_step_count=25)


def test_a_prefix_is_stored_once_whoever_shares_it() -> None:
    cache = PrefixCache(1 << 20)
    base = list(range(100))
    put(cache, base)
    once = cache.nbytes
    put(cache, [*base, 1, 2, 3])
    put(cache, [*base, 7, 8, 9])
    put(cache, [*base[:50], 200, 201])
    assert cache.nbytes == once * 108 // 100


def test_long_edges_are_cut_into_blocks_that_fit_together_again() -> None:
    cache = PrefixCache(1 << 24)
    tokens = [i % 251 for i in range(2 * SPAN + 300)]
    put(cache, tokens)
    other = [*tokens[: SPAN + 7], 300, 301]
    put(cache, other)
    for want, prompt in (
        (tokens, [*tokens, 1]),
        (other, [*other, 1]),
        (tokens[: SPAN + 6], [*tokens[: SPAN + 6], 999]),
    ):
        found = cache.match(prompt, "k")
        assert found is not None
        assert found.length == len(want)
        check(found.snapshot, want, ("append",))


def test_kinds_of_hits() -> None:
    cache = PrefixCache(1 << 20)
    prompt, turn = [1, 2, 3, 4], [1, 2, 3, 4, 5, 6]
    assert cache.match(prompt, "k") is None
    put(cache, prompt, kind="boundary")
    put(cache, turn, kind="turn")
    kinds = [
        found.kind if (found := cache.match(p, "k")) else "miss"
        for p in (prompt, [*turn, 9], [1, 2, 3, 4, 9, 9], [1, 2, 9, 9], [9, 1])
    ]
    assert kinds == ["exact", "turn", "boundary", "branch", "miss"]
    stats = cache.stats()
    assert dict(stats.hits) == {"miss": 2, "exact": 1, "turn": 1, "boundary": 1, "branch": 1}
    assert stats.tokens_served == 3 + 6 + 4 + 2


def test_another_model_or_picture_is_another_world() -> None:
    cache = PrefixCache(1 << 20)
    put(cache, [1, 2, 3], key="model|picture")
    assert cache.match([1, 2, 3, 4], "model") is None
    assert cache.match([1, 2, 3, 4], "model|picture") is not None


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_restores_never_change_what_is_stored(kinds: tuple[str, ...]) -> None:
    """Writes into everything that comes out, and into what went in; both must leave the cache alone."""
    rng, cache = random.Random(0), PrefixCache(1 << 22)
    donors: list[mx.array] = []
    for _ in range(12):
        tokens = [rng.randrange(3) for _ in range(rng.randint(2, 30))]
        snap = snapshot(tokens, kinds)
        cache.put(tokens, len(tokens), "k", snap)
        donors += snap.arrays()
        found = cache.match([*tokens, 9], "k")
        assert found is not None
        for x in [*found.snapshot.arrays(), *donors]:
            if x.size:
                x[...] = -1.0
        again = cache.match([*tokens, 9], "k")
        assert again is not None
        check(again.snapshot, tokens[: again.length], kinds)


def test_probation_protects_a_long_conversation() -> None:
    """Many title requests beside one long conversation."""
    long = [i % 50 for i in range(4000)]
    cache = PrefixCache(0)
    cache.budget = 10**9
    put(cache, long)
    cache.budget = cache.nbytes * 5 // 4
    for n in range(60):
        prompt = [1000 + n, *range(200)]
        cache.match(prompt, "k")
        put(cache, prompt)
        assert cache.nbytes <= cache.budget
    found = cache.match([*long, 1], "k")
    assert found is not None
    assert found.length == len(long)
    assert len(long) > SHORT


def test_more_valuable_prefixes_stay() -> None:
    """A system prompt that many chats share outlives chats that nobody came back for."""
    cache = PrefixCache(10**9)
    system = [i % 40 for i in range(2000)]
    one = [*system, 999, *range(1500)]
    put(cache, one)
    cache.budget = cache.nbytes * 2
    for n in range(12):
        prompt = [*system, 1000 + n, *range(1500)]
        found = cache.match(prompt, "k")
        assert found is not None
        assert found.length >= len(system)
        put(cache, prompt)
        assert cache.nbytes <= cache.budget
    assert cache.stats().evicted > 0


def test_o48_two_hundred_conversations_fit_the_budget_and_leave_no_buffers() -> None:
    """O48: a byte limit that counts every part; buffers do not pile up."""
    rng, cache = random.Random(4), PrefixCache(20_000)
    counts: list[int] = []
    for number in range(200):
        history: list[int] = []
        for _ in range(rng.randint(1, 3)):
            history += [rng.randrange(9) for _ in range(rng.randint(1, 60))]
            cache.match(history, "k")
            held = {"draft": ToyContext(tuple(history))}
            put(cache, history, ("append", "recurrent"), drafting=held)
            assert cache.nbytes <= cache.budget
        if number % 50 == 49:
            gc.collect()
            counts.append(sum(isinstance(x, mx.array) for x in gc.get_objects()) or mx.get_active_memory())
    assert counts[3] <= 1.1 * counts[2]


def test_o18_drafter_contexts_are_carried_and_superseded() -> None:
    """O18: a context serves every shorter length that it can be cut to, and no request waits for one."""
    cache = PrefixCache(1 << 20)
    tokens = list(range(10))
    put(cache, tokens[:6], drafting={"d": ToyContext(tuple(tokens[:6]))})
    put(cache, tokens, drafting={"d": ToyContext(tuple(tokens)), "w": ToyContext(tuple(tokens), 10)})
    for length in (3, 6, 9):
        found = cache.match([*tokens[:length], 99], "k", "d")
        assert found is not None
        assert found.length == length
        assert found.context is not None
        assert found.context.length == 10
    missing = cache.match([*tokens, 99], "k", "other")
    assert missing is not None
    assert missing.context is None
    windowed = PrefixCache(1 << 20)
    put(windowed, tokens[:6], drafting={"w": ToyContext(tuple(tokens[:6]), 6)})
    put(windowed, tokens, drafting={"w": ToyContext(tuple(tokens), 10)})
    found = windowed.match([*tokens[:6], 99], "k", "w")
    assert found is not None
    assert found.context is not None
    assert found.context.length == 6


def test_marks() -> None:
    cache = PrefixCache(1 << 22)
    kinds = ("append", "recurrent")
    prompt = [i % 7 for i in range(9000)]
    assert cache.marks(prompt, 0, (), "k", trimmable=True) == []
    assert cache.marks(prompt, 0, (100, 8990), "k") == [
        Mark(100, "boundary"),
        Mark(2048, "rung"),
        Mark(4096, "rung"),
        Mark(8192, "rung"),
        Mark(8990, "boundary"),
    ]
    # Nothing in sight: an identical repeat must still have one token to read.
    assert cache.marks([1, 2, 3], 0, (), "k") == [Mark(2, "boundary")]
    assert cache.marks([1], 0, (), "k") == []
    put(cache, prompt[:3000], kinds)
    other = [*prompt[:2500], *[99] * 20]
    assert Mark(2500, "anchor") in cache.marks(other, 0, (2510,), "k")
    assert cache.marks(other, 2500, (2510,), "k") == [Mark(2510, "boundary")]


def test_shed_keeps_the_two_deepest_checkpoints() -> None:
    cache = PrefixCache(1 << 22)
    kinds = ("append", "recurrent")
    tokens = list(range(40))
    for length in (10, 20, 30, 40):
        put(cache, tokens[:length], kinds)
    assert cache.shed("warn") > 0
    found = [m.length if (m := cache.match([*tokens[:n], 99], "k")) else 0 for n in (10, 20, 30, 40)]
    assert found == [0, 0, 30, 40]


def test_saved_time_is_measured_or_nothing() -> None:
    cache = PrefixCache(1 << 20)
    assert cache.saved_ms("k", 100) == 0.0
    cache.learn("k", 3, 50.0)
    assert cache.saved_ms("k", 100) == 0.0
    cache.learn("k", 100, 50.0)
    assert cache.saved_ms("k", 200) == pytest.approx(100.0)


def test_default_budget() -> None:
    assert default_budget(64 << 30, 32 << 30) == (64 << 30) * 15 // 100
    assert default_budget(64 << 30, 2 << 30) == 1 << 30
    assert default_budget(1 << 30, 0) == 64 << 20


def test_of_what_is_too_long_the_head_is_kept_and_others_stay() -> None:
    cache = PrefixCache(1 << 30)
    put(cache, list(range(2000)))
    cache.budget = cache.nbytes * 2
    long = [7, *range(5000)]
    cache.match([*range(2000), 5], "k")
    assert put(cache, long)
    found = cache.match([*long, 1], "k")
    assert found is not None
    assert 2000 < found.length < 5000
    check(found.snapshot, long[: found.length], ("append",))
    hybrid = PrefixCache(1 << 16)
    kinds = ("append", "recurrent")
    put(hybrid, list(range(100)), kinds)
    assert not put(hybrid, long, kinds)
    assert hybrid.match([*range(100), 3], "k") is not None


def test_what_does_not_fit_is_refused_and_counted() -> None:
    cache = PrefixCache(10)
    assert not put(cache, [1, 2, 3])
    assert cache.stats().refused == 1
    assert cache.nbytes == 0
    with pytest.raises(ValueError, match="cannot stand for"):
        cache.put([1, 2], 3, "k", snapshot([1, 2]))


def test_numpy_tokens_are_tokens() -> None:
    cache = PrefixCache(1 << 20)
    put(cache, [1, 2, 3])
    found = cache.match(np.array([1, 2, 3, 4]), "k")  # pyright: ignore[reportArgumentType]
    assert found is not None
    assert found.length == 3

"""Warm equals cold, for every mix of layer kinds and every shared length."""

from __future__ import annotations

import random
from collections.abc import Sequence

import mlx.core as mx
import pytest

from engine.kv_cache.base import State
from engine.prefix_cache.cache import PrefixCache
from tests.engine.prefix_cache.mixed import VOCAB, MixedTarget, greedy, read

MIXES = [
    ("append",),
    ("append", "append"),
    ("window",),
    ("recurrent",),
    ("append", "window"),
    ("append", "recurrent"),
    ("append", "recurrent", "conv"),
    ("window", "append", "recurrent", "conv"),
]
KEY = "toy"


def turn(
    target: MixedTarget, cache: PrefixCache | None, prompt: Sequence[int], count: int
) -> tuple[list[int], int, State]:
    """One request as the engine makes it: match, prefill with marks, decode, keep the turn. Returns ids, fed, state."""
    state = target.new_state()
    before, at = target.fed, 0
    marks = []
    trimmable = set(target.kinds) == {"append"}
    if cache is not None:
        match = cache.match(prompt, KEY)
        if match is not None:
            assert match.length < len(prompt)
            state.restore(match.snapshot, match.length)
            at = match.length
        marks = cache.marks(prompt, at, (), KEY, trimmable=trimmable)
    for mark in marks:
        assert at < mark.at < len(prompt)
        read(target, state, prompt[at : mark.at])
        at = mark.at
        assert cache is not None
        cache.put(prompt, at, KEY, state.snapshot(), kind=mark.kind)
    first = read(target, state, prompt[at:])
    if cache is not None and trimmable:
        cache.put(prompt, len(prompt), KEY, state.snapshot())
    fed = target.fed - before
    out = greedy(target, state, first, count)
    if cache is not None:
        tokens = [*prompt, *out]
        cache.put(tokens, len(tokens) - 1, KEY, state.snapshot(), kind="turn")
    return out, fed, state


def equal_states(a: State, b: State) -> bool:
    assert a.lengths == b.lengths
    for x, y in zip(a.snapshot().layers, b.snapshot().layers, strict=True):
        assert x.length == y.length
        for p, q in zip(x.data, y.data, strict=True):
            if isinstance(p, mx.array) and x.kind != "window" and not mx.array_equal(p, q).item():
                return False
    return True


@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_every_shared_length(mix: tuple[str, ...]) -> None:
    target = MixedTarget(*mix)
    rng = random.Random(1)
    first = [rng.randrange(VOCAB) for _ in range(20)]
    for shared in range(len(first) + 1):
        for tail in (0, 5):
            prompt = first[:shared] + [(t + 1) % VOCAB for t in first[shared : shared + tail]]
            if not prompt:
                continue
            cache = PrefixCache(1 << 24)
            turn(target, cache, first, 6)
            warm, _, warm_state = turn(target, cache, prompt, 6)
            cold, _, cold_state = turn(target, None, prompt, 6)
            assert warm == cold, (mix, shared, tail)
            assert equal_states(warm_state, cold_state)


@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_conversation_reads_only_what_is_new(mix: tuple[str, ...]) -> None:
    """O13, O16: count what the target was really fed, over turns and repeats."""
    target, cache, rng = MixedTarget(*mix), PrefixCache(1 << 24), random.Random(2)
    history = [rng.randrange(VOCAB) for _ in range(40)]
    for number in range(5):
        out, fed, state = turn(target, cache, history, 8)
        cold, _, cold_state = turn(target, None, history, 8)
        assert out == cold
        assert equal_states(state, cold_state)
        if number:
            assert fed <= 8
        again, fed, _ = turn(target, cache, history, 8)
        assert again == out
        assert fed == 1
        history += out + [rng.randrange(VOCAB) for _ in range(7)]


@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_fan_out_hits_the_anchor_from_the_second_on(mix: tuple[str, ...]) -> None:
    target, cache, rng = MixedTarget(*mix), PrefixCache(1 << 24), random.Random(3)
    system = [rng.randrange(VOCAB) for _ in range(50)]
    fed = [turn(target, cache, [*system, n, *[rng.randrange(VOCAB) for _ in range(6)]], 4)[1] for n in range(4)]
    assert fed[0] == 57
    assert all(f <= 7 for f in fed[2:]), fed
    if set(mix) == {"append"}:
        assert fed[1] <= 7


def test_one_token_prompts_and_shorter_prompts() -> None:
    for mix in MIXES:
        target, cache = MixedTarget(*mix), PrefixCache(1 << 24)
        for prompt in ([5], [5], [5, 6, 7, 8], [5, 6], [5], [6]):
            assert turn(target, cache, prompt, 3)[0] == turn(target, None, prompt, 3)[0]

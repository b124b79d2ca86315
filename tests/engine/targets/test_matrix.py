"""Every kind of state, and mixtures of them, after every partial accept and for every next width: as if never drafted.

Kinds: append, shared keys, window, gated delta, Mamba-2, short convolution, packed keys. The window of the tiny models
is 16 tokens: a prompt of 8 stays inside, 13 crosses it during the round, 20 is past it.
"""

from __future__ import annotations

import mlx.core as mx
import pytest

from tests.cases import thinned
from tests.engine.targets.conftest import Tiny
from tests.engine.targets.feeding import distance, feed, prefilled, recurrent_slots, same, tokens_of

FAMILIES = [
    "llama", "qwen3_moe", "gemma4_text", "gemma4_dense", "qwen3_5", "qwen3_5_moe", "qwen3_next", "nemotron_h", "lfm2",
    "lfm2_moe", "muse_glimmer", "granitemoehybrid",
]  # fmt: skip
BLOCK = 6
BIT_EQUAL = 0.0
TOLERANCE = {"nemotron_h": 2e-5, "granitemoehybrid": 2e-5}
"""Mamba-2's form for several rows is not the form for one row."""


@pytest.mark.parametrize(("family", "prompt"), thinned(FAMILIES, [8, 13, 20]))
def test_partial_accept_then_any_width(tiny: Tiny, family: str, prompt: int) -> None:
    target = tiny(family)
    tolerance = TOLERANCE.get(family, BIT_EQUAL)
    start = prefilled(target, tokens_of(prompt)).snapshot()
    drafts, after = tokens_of(BLOCK, seed=1), tokens_of(5, seed=2)
    cold = same(target, start)
    for keep in range(BLOCK + 1):
        warm = same(target, start)
        feed(target, warm, drafts, keep)
        if keep:
            feed(target, cold, drafts[keep - 1 : keep])
        assert warm.lengths == cold.lengths == [prompt + keep]
        assert distance(recurrent_slots(warm), recurrent_slots(cold)) <= tolerance, f"state after {keep} rows"
        left, right = warm.snapshot(), cold.snapshot()
        for width in (1, 2, 5):
            a, b = same(target, left), same(target, right)
            logits = feed(target, a, after[:width]), feed(target, b, after[:width])
            assert distance(*[[x] for x in logits]) <= tolerance, f"keep {keep}, next {width}"
        # The first state itself, not a restored copy of it, must go on as well.
        assert distance([feed(target, warm, after[:1])], [feed(target, same(target, right), after[:1])]) <= tolerance


@pytest.mark.parametrize("family", FAMILIES)
def test_many_rounds_end_like_one_token_at_a_time(tiny: Tiny, family: str) -> None:
    """Rejections in every round, widths 1 to 8, far past the window."""
    target = tiny(family)
    text = tokens_of(70, seed=3)
    warm, cold = prefilled(target, text[:5]), prefilled(target, text[:5])
    at, turn = 5, 0
    while at < len(text) - 8:
        width = (1, 8, 3, 5, 2, 7)[turn % 6]
        keep = min(width, (1, 0, 2, 5, 1, 3, 6)[turn % 7])
        feed(target, warm, text[at : at + keep] + tokens_of(width - keep, seed=turn + 9), keep)
        at, turn = at + keep, turn + 1
    for token in text[5:at]:
        expected = feed(target, cold, [token])
    tail = text[at : at + 1]
    expected, found = feed(target, cold, tail), feed(target, warm, tail)
    assert distance([found], [expected]) <= TOLERANCE.get(family, BIT_EQUAL)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_aborted_round_leaves_nothing(tiny: Tiny, family: str) -> None:
    target = tiny(family)
    state = prefilled(target, tokens_of(20))
    before = state.snapshot()
    with state.begin(4):
        target.body(mx.array([tokens_of(4)]), state)
    assert state.lengths == [20]
    expected = feed(target, same(target, before), [5])
    assert distance([feed(target, state, [5])], [expected]) == BIT_EQUAL


@pytest.mark.parametrize("family", ["nemotron_h", "granitemoehybrid"])
def test_mamba2_equals_a_round_of_the_kept_rows(tiny: Tiny, family: str) -> None:
    """Bit-equal to a forward of exactly the kept rows, whatever was drafted behind them."""
    target = tiny(family)
    start = prefilled(target, tokens_of(20)).snapshot()
    drafts = tokens_of(BLOCK, seed=1)
    for keep in range(1, BLOCK + 1):
        warm, block = same(target, start), same(target, start)
        feed(target, warm, drafts, keep)
        feed(target, block, drafts[:keep])
        assert distance(recurrent_slots(warm), recurrent_slots(block)) == BIT_EQUAL

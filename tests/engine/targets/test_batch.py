"""Sequences of different lengths in one forward, with different numbers of accepted drafts: each as if alone."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine.state.recurrent import RecurrentState
from tests.engine.targets.conftest import Tiny
from tests.engine.targets.feeding import distance, feed, prefilled, tokens_of

FAMILIES = ["llama", "qwen3_moe", "gemma4_text", "qwen3_5", "nemotron_h", "lfm2", "muse_glimmer"]
PROMPTS = (5, 11, 20)
ROUNDS = ((4, (4, 1, 0)), (3, (2, 3, 1)), (1, (1, 1, 1)), (6, (1, 5, 6)), (2, (2, 1, 1)))
TOLERANCE = 2e-5
"""Masked and unmasked attention sum in a different order."""


@pytest.mark.parametrize("family", FAMILIES)
def test_each_row_as_if_alone(tiny: Tiny, family: str) -> None:
    target = tiny(family)
    singles = [prefilled(target, tokens_of(n, seed=n)) for n in PROMPTS]
    batch = prefilled(target, tokens_of(PROMPTS[0], seed=PROMPTS[0]))
    for n in PROMPTS[1:]:
        batch.extend(prefilled(target, tokens_of(n, seed=n)))
    for turn, (width, keeps) in enumerate(ROUNDS):
        rows = [tokens_of(width, seed=10 * turn + b) for b in range(len(PROMPTS))]
        with batch.begin(width) as round:
            logits = target.logits(target.body(mx.array(rows), batch).hidden)
            round.commit(keeps)
        for b, (single, row, keep) in enumerate(zip(singles, rows, keeps, strict=True)):
            assert distance([feed(target, single, row, keep)], [logits[b]]) < TOLERANCE
    assert batch.lengths == [s.lengths[0] for s in singles]
    for layer, *others in zip(batch.layers, *(s.layers for s in singles), strict=True):
        if isinstance(layer, RecurrentState):
            for b, other in enumerate(others):
                assert distance([x[b : b + 1] for x in layer.arrays()], other.arrays()) < TOLERANCE


@pytest.mark.parametrize("family", ["qwen3_5", "lfm2", "gemma4_text"])
def test_a_row_that_leaves_does_not_touch_the_others(tiny: Tiny, family: str) -> None:
    target = tiny(family)
    single = prefilled(target, tokens_of(11))
    batch = prefilled(target, tokens_of(20))
    batch.extend(prefilled(target, tokens_of(11)))
    batch.select([1])
    expected = feed(target, single, tokens_of(3), 2)
    assert distance([feed(target, batch, tokens_of(3), 2)], [expected]) < TOLERANCE
    expected = feed(target, single, [9])
    assert distance([feed(target, batch, [9])], [expected]) < TOLERANCE

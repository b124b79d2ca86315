"""Sequences of different lengths in one forward, with different numbers of accepted drafts: each as if alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from engine.engine import Options
from engine.kv_cache.recurrent import RecurrentState
from engine.load import open_engine
from engine.types import Request
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


@pytest.mark.parametrize("family", ["qwen3_5", "nemotron_h", "lfm2", "gemma4_text", "muse_glimmer"])
def test_requests_that_decode_together_answer_as_alone(tiny_folder: Callable[..., Path], family: str) -> None:
    """Through the engine: three lengths, other drafters and caps in one batch, one cancelled in the middle."""
    prompts = [tokens_of(n, seed=n) for n in (6, 30, 17)]
    with open_engine(tiny_folder(family)) as engine:
        alone = [
            list(engine.submit(Request(p, max_tokens=16, stop_ids=frozenset(), drafter="none")))[-1].tokens  # type: ignore[union-attr]
            for p in prompts
        ]
    with open_engine(tiny_folder(family), options=Options(max_batch=4)) as engine:
        gone = engine.submit(Request(tokens_of(9), max_tokens=400, stop_ids=frozenset(), drafter="none"))
        tickets = [
            engine.submit(Request(p, max_tokens=16, stop_ids=frozenset(), drafter=d, cap=c))
            for p, d, c in zip(prompts, ("lookup", "none", "lookup"), (1, 0, 5), strict=True)
        ]
        next(iter(gone))
        gone.cancel()
        together = [list(t)[-1].tokens for t in tickets]  # type: ignore[union-attr]
    assert together == alone

"""Sampling with a drafter follows the target's law: conditional, independent, selector and reduced-vocabulary q.

One round emits its accepted drafts and one token of the target's; whatever was drafted, each emitted token must follow
the target's law given the token before it. Random numbers are fixed, so the test cannot flicker.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from stats import Family

from engine.decoding.verify import accept
from engine.drafters.load import load_drafter
from engine.sampling.sampler import RowSampler, transform
from engine.types import Sampling, SparseQ
from tests.engine.drafters import synthetic as s

PENDING, DRAFTS, BATCH = 5, 2, 250


LAW_TESTS = Family(tests=300)


def fits(counts: Counter[int], law: np.ndarray) -> bool:
    """Whether counts of tokens are as a law has them."""
    total = sum(counts.values())
    return LAW_TESTS.follows([counts[token] for token in range(len(law))], [total * p for p in law.tolist()])


def prepare(drafter: Any) -> tuple[Any, mx.array]:
    """A context, and target logits [V, V] that favour what the drafter would say first, so that drafts get accepted.

    The block's hidden rows do not depend on the draws; they are computed once, which saves most of the time.
    """
    context = drafter.new_context()
    drafter.observe(context, mx.random.normal((12, 3 * s.H), key=mx.random.key(1)), 0, [0] * 12)
    hidden = drafter.predicting([context], [PENDING], DRAFTS)
    logits = np.array(drafter.base_logits(drafter.raw_head(hidden)))
    mx.eval(hidden)
    drafter.predicting = lambda contexts, pendings, k: mx.tile(hidden[:k], (len(contexts), 1))
    best = np.argsort(-logits, axis=-1)[:, :4].ravel()
    words = best if drafter._draft_ids is None else np.array(drafter._draft_ids)[best]
    table = np.random.default_rng(11).normal(size=(s.V, s.V)) - 3.0
    table[:, words] += 4.5
    return context, mx.array(table.astype(np.float32))


def emitted(
    drafter: Any, context: Any, table: mx.array, sampling: Sampling, rounds: int, rows: int = 1
) -> tuple[dict[tuple[int, ...], Counter[int]], float]:
    """Counts of each emitted token by what its law depends on, which is the token before it, or with penalties all of
    them; and the share of drafts accepted. `rows` draft together."""
    samplers = [RowSampler(sampling, [0], s.V) for _ in range(rows)]
    for sampler in samplers:
        sampler._base = 20261129
    position = context.length + 1
    counts: dict[tuple[int, ...], Counter[int]] = {}
    accepted = 0
    for batch in range(0, rounds, BATCH):
        lines: list[mx.array] = []
        for i in range(batch, batch + BATCH, rows):
            for row, sampler in enumerate(samplers):
                sampler.round = i + row
            if rows == 1:
                proposals = [drafter.propose(context, PENDING, DRAFTS, samplers[0])]
            else:
                proposals = drafter.propose_rows([context] * rows, [PENDING] * rows, [DRAFTS] * rows, samplers)
            for proposal, sampler in zip(proposals, samplers, strict=True):
                assert proposal.q is not None
                fed = mx.concatenate([mx.array([PENDING]), proposal.tokens])
                verdict = accept(table[fed], proposal, sampler, position)
                lines.append(mx.concatenate([verdict.accepted[None], verdict.token[None], proposal.tokens]))
        for n, token, *drafts in mx.stack(lines).tolist():
            accepted += n
            before = (PENDING,)
            for value in [*drafts[:n], token]:
                counts.setdefault(before, Counter())[value] += 1
                before = (*before, value) if samplers[0].penalties else (value,)
    return counts, accepted / (rounds * DRAFTS)


LAYOUTS = {
    "conditional": "deepspec",
    "independent": "zlab",
    "selector": "dflash2",
    "reduced": "speculators-dspark",
    "reduced-independent": "speculators-dflash-reduced",
}
PLAIN = Sampling(temperature=1.0)
TRUNCATED = Sampling(temperature=0.7, top_k=12, top_p=0.9, min_p=0.01)
PENALISED = Sampling(
    temperature=0.8,
    top_p=0.95,
    repetition_penalty=1.5,
    presence_penalty=0.6,
    frequency_penalty=0.4,
    logit_bias={3: 1.0, 9: -1.0, 50: -100.0},
)
CASES = [
    *((name, PLAIN, 1) for name in LAYOUTS),
    ("conditional", TRUNCATED, 1),
    ("reduced", TRUNCATED, 1),
    ("conditional", PLAIN, 5),
    ("selector", TRUNCATED, 5),
    *((name, PENALISED, 1) for name in LAYOUTS),
    ("conditional", PENALISED, 5),
]


def law_of(table: mx.array, sampling: Sampling, before: tuple[int, ...]) -> np.ndarray:
    """The target's law after these tokens, the first of which is no news to the penalties."""
    rows = RowSampler(sampling, [0], s.V).processed(table[list(before)], mx.array(before[1:], dtype=mx.int32))
    return np.array(transform(rows[-1], sampling))


@pytest.mark.parametrize(("name", "sampling", "rows"), CASES, ids=[f"{n}-{p.temperature}-{r}" for n, p, r in CASES])
def test_emitted_tokens_follow_the_target(name: str, sampling: Sampling, rows: int, tmp_path: Path) -> None:
    """Alone, and where several rows draft together."""
    drafter = load_drafter(s.LAYOUTS[LAYOUTS[name]]().save(tmp_path), s.Lender())
    context, table = prepare(drafter)
    counts, rate = emitted(drafter, context, table, sampling, 1000, rows)
    assert 0.05 < rate < 0.95
    assert fits(counts[PENDING,], law_of(table, sampling, (PENDING,)))
    big = [before for before, seen in counts.items() if sum(seen.values()) >= 30]
    assert len(big) > 1
    for before in big:
        assert fits(counts[before], law_of(table, sampling, before)), before


def test_the_test_can_fail(tmp_path: Path) -> None:
    """Reporting a q that was not drawn from (O7) is caught."""
    drafter = load_drafter(s.deepspec().save(tmp_path), s.Lender())
    context, table = prepare(drafter)
    honest = drafter.propose

    def lie(context: Any, pending: int, k: int, sampler: RowSampler) -> Any:
        proposal: Any = honest(context, pending, k, sampler)
        flat = mx.full(proposal.q.probs.shape, 1.0 / s.V)
        return type(proposal)(proposal.tokens, proposal.source, type(proposal.q)(flat))

    drafter.propose = lie  # type: ignore[method-assign]
    counts, _ = emitted(drafter, context, table, PLAIN, 1000)
    assert not fits(counts[PENDING,], np.array(transform(table, PLAIN))[PENDING])


@pytest.mark.parametrize("name", LAYOUTS)
def test_drafts_are_drawn_from_the_q_they_report(name: str, tmp_path: Path) -> None:
    """Also for weights in 16 bits, where a rounded softmax would differ from the reported one (O6)."""
    made = s.LAYOUTS[LAYOUTS[name]]()
    made.tensors = {n: v.astype(mx.bfloat16) if v.dtype == mx.float32 else v for n, v in made.tensors.items()}
    drafter = load_drafter(made.save(tmp_path), s.Lender())
    context, _ = prepare(drafter)
    sampler = RowSampler(PLAIN, [0], s.V)
    sampler._base = 7
    first: list[mx.array] = []
    law = np.zeros(s.V)
    for i in range(800):
        sampler.round = i
        proposal = drafter.propose(context, PENDING, 1, sampler)
        first.append(proposal.tokens)
        if i == 0:
            q = proposal.q
            ids = np.array(q.ids[0]) if isinstance(q, SparseQ) else np.arange(s.V)
            np.add.at(law, ids, np.array(q.probs[0]))
    assert abs(law.sum() - 1) < 1e-5
    assert fits(Counter(int(t) for t in mx.concatenate(first).tolist()), law)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_seed_gives_one_text_for_every_drafter(name: str, tmp_path: Path) -> None:
    """Coupled sampling: what is emitted is argmax(log p + noise of the position), whatever was drafted."""
    sampling = Sampling(temperature=1.0, seed=3)
    drafter = load_drafter(s.LAYOUTS[LAYOUTS[name]]().save(tmp_path), s.Lender())
    sampler = RowSampler(sampling, [0], s.V)
    context, table = prepare(drafter)
    position = context.length + 1
    proposal = drafter.propose(context, PENDING, DRAFTS, sampler)
    assert proposal.q is None
    fed = mx.concatenate([mx.array([PENDING]), proposal.tokens])
    verdict = accept(table[fed], proposal, sampler, position)
    n, token = int(verdict.accepted.item()), int(verdict.token.item())
    before = PENDING
    for i, value in enumerate([*proposal.tokens.tolist()[:n], token]):
        p = transform(table[before], sampling)
        assert value == int(mx.argmax(mx.log(p) + sampler.noise(position + i, 1)[0]).item())
        before = value

"""The law: golden filters, float32 from any dtype, and exact samples whatever is proposed.

The statistical tests run the very functions of the round, vectorised over independent trials by mx.vmap.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakes import DrawingDrafter, Run, ScriptedDrafter, TableTarget
from hypothesis import given
from hypothesis import strategies as st
from stats import Family

from engine.decoding.verify import Fault, accept, by_equality, by_rejection, vetted
from engine.drafters.chain import Chain
from engine.sampling.logits_processors import Penalties
from engine.sampling.sampler import Draws, Purpose, RowSampler, log_of, transform
from engine.types import DenseQ, Proposal, Sampling, SparseQ
from tests.cases import examples

GOLDEN = Path(__file__).parents[2] / "golden" / "sampling"
DRAWS = 1_000_000
LAW_TESTS = Family(tests=200)


def test_filters_match_the_reference():
    """400 cases of temperature, top-k, top-p and min-p of the field's reference implementation."""
    cases = json.loads((GOLDEN / "sampling.json").read_text())["cases"]
    data: Any = mx.load(str(GOLDEN / "sampling.safetensors"))
    for j, case in enumerate(cases):
        law = Sampling(temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"], min_p=case["min_p"])
        probs = transform(data["logits"][case["row"]], law)
        expected = data["probs"][j]
        if case["tie_at_cut"]:
            probs, expected = mx.sort(probs), mx.sort(expected)
        assert mx.allclose(probs, expected, atol=1e-5), case


@examples(150)
@given(
    seed=st.integers(0, 10_000),
    vocab=st.integers(1, 40),
    k=st.integers(0, 45),
    p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 3.0]),
    flat=st.booleans(),
)
def test_a_law_is_a_law_and_the_best_token_stays(seed, vocab, k, p, min_p, temperature, flat):
    """Finite, sums to one, argmax kept, for any parameters; flat logits with top_k 1 included (O8)."""
    logits = mx.zeros((vocab,)) if flat else mx.random.normal((vocab,), key=mx.random.key(seed)) * 4
    probs = transform(logits, Sampling(temperature=temperature, top_k=k, top_p=p, min_p=min_p))
    assert abs(mx.sum(probs).item() - 1) < 1e-5
    assert mx.all(mx.isfinite(probs)).item()
    assert mx.max(mx.where(logits == mx.max(logits), probs, 0)).item() > 0


def test_low_precision_logits_are_summed_in_float32():
    logits = (mx.random.normal((50_000,), key=mx.random.key(3)) * 2).astype(mx.bfloat16)
    for law in (Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.9, top_k=50)):
        probs = transform(logits, law)
        assert probs.dtype == mx.float32
        assert abs(mx.sum(probs).item() - 1) < 1e-4
        assert mx.allclose(probs, transform(logits.astype(mx.float32), law), atol=1e-7)


def test_log_of_zero_is_minus_infinity_not_a_floor():
    assert log_of(mx.array([0.5, 0.0])).tolist()[1] == float("-inf")


# Rejection: exact for any q ------------------------------------------------------------------------------------------

P = mx.array(
    [[0.5, 0.2, 0.1, 0.1, 0.07, 0.03, 0.0], [0.05, 0.05, 0.3, 0.3, 0.1, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1, 0, 0, 0]]
)
LAWS = {
    "spread": mx.array([[0.1, 0.4, 0.1, 0.1, 0.1, 0.1, 0.1], [0.3, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1]]),
    "equal": P[:2],
    "disjoint": mx.array([[0, 0, 0, 0, 0, 0, 1.0], [0, 0.5, 0, 0, 0, 0.5, 0]]),
    "near": mx.array([[0.5, 0.2, 0.1, 0.1, 0.06999999, 0.03000001, 0.0], [0.05, 0.05, 0.3, 0.3, 0.1, 0.1, 0.1]]),
}


def joint(accepted: mx.array, token: mx.array, drafts: mx.array, vocab: int) -> mx.array:
    """Counts of (first, second) emitted tokens; the second is -1 (column `vocab`) when one token was emitted."""
    first = mx.where(accepted >= 1, drafts[:, 0], token)
    second = mx.where(accepted == 0, vocab, mx.where(accepted >= 2, drafts[:, 1], token))
    flat = first * (vocab + 1) + second
    return mx.zeros((vocab * (vocab + 1),)).at[flat].add(1.0).reshape(vocab, vocab + 1)


def trials(q: Any, tamper: Any = lambda u, g: (u, g)) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Accepted, token, faults and drafts of as many independent rounds as there are draws."""
    k1, k2, k3 = mx.random.split(mx.random.key(11), 3)
    uniforms = mx.random.uniform(shape=(DRAWS, 2), key=k1)
    gumbel = mx.random.gumbel((DRAWS, P.shape[1]), key=k2)
    if q is None:
        drafts = mx.broadcast_to(mx.array([1, 3]), (DRAWS, 2)).astype(mx.int32)
    else:
        noise = mx.random.gumbel((DRAWS, *q.probs.shape), key=k3)
        picks = mx.argmax(log_of(q.probs)[None] + noise, axis=-1)
        drafts = picks if isinstance(q, DenseQ) else mx.stack([q.ids[i][picks[:, i]] for i in (0, 1)], axis=1)
    judge = lambda d, u, g: tuple(by_rejection(P, vetted(Proposal(d, q=q), 2, P.shape[1]), *tamper(u, g)))  # noqa: E731
    accepted, token, faults = mx.vmap(judge)(drafts, uniforms, gumbel)
    return accepted, token, faults, mx.clip(drafts.astype(mx.int32), 0, P.shape[1] - 1)


def exact(accepted: mx.array, token: mx.array, drafts: mx.array) -> bool:
    """Marginal of the first token, and of the second given that the first was accepted."""
    vocab = P.shape[1]
    counts = joint(accepted, token, drafts, vocab)
    first, second = mx.sum(counts, axis=1), mx.sum(counts[:, :vocab], axis=0)
    one = LAW_TESTS.follows(first.tolist(), (P[0] * DRAWS).tolist())
    return LAW_TESTS.follows(second.tolist(), (P[1] * mx.sum(second)).tolist()) and one


@pytest.mark.parametrize("kind", [*LAWS, "point"])
def test_rejection_emits_the_target_s_law(kind):
    """Over 10^6 trials."""
    accepted, token, faults, drafts = trials(None if kind == "point" else DenseQ(LAWS[kind]))
    assert exact(accepted, token, drafts)
    assert not mx.any(faults).item()
    if kind == "equal":
        assert mx.mean((accepted == 2).astype(mx.float32)).item() > 0.9999
    if kind == "disjoint":
        assert mx.max(accepted).item() <= 2


PLANTS = {
    "accepts 2 % too easily": ("spread", lambda u, g: (0.98 * u, g)),
    "accepts 2 % too hard": ("spread", lambda u, g: (u / 0.98, g)),
    "replaces by one token 2 % too often": ("point", lambda u, g: (u, g + 0.02 * (mx.arange(g.shape[0]) == 0))),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bias_of_two_percent_is_found(plant):
    kind, tamper = PLANTS[plant]
    accepted, token, _, drafts = trials(None if kind == "point" else DenseQ(LAWS[kind]), tamper)
    assert not exact(accepted, token, drafts)


SPREAD = LAWS["spread"].tolist()
NO_LAWS = {
    "nan": [math.nan] * 7,
    "one nan": [0.5, math.nan, 0.5, 0, 0, 0, 0],
    "infinite": [math.inf, 0, 0, 0, 0, 0, 0],
    "negative": [0.6, 0.5, -0.1, 0, 0, 0, 0],
    "nothing": [0.0] * 7,
    "too little": [0.99 * q for q in SPREAD[0]],
    "too much": [1.01 * q for q in SPREAD[0]],
}


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("kind", NO_LAWS)
def test_what_is_no_law_leaves_the_target_s(kind, row):
    """The row is drawn from p itself, a law before it is judged as ever, and the drafter is named."""
    q = mx.array([NO_LAWS[kind] if i == row else SPREAD[i] for i in (0, 1)])
    accepted, token, faults, drafts = trials(DenseQ(q))
    assert exact(accepted, token, drafts)
    assert mx.max(accepted).item() == row
    assert mx.all(faults == int(Fault.DRAFTER)).item()


@pytest.mark.parametrize("factor", [0.9995, 1.0005])
def test_rounding_of_a_law_is_no_fault_and_no_bias(factor):
    accepted, token, faults, drafts = trials(DenseQ(factor * LAWS["spread"]))
    assert exact(accepted, token, drafts)
    assert not mx.any(faults).item()
    assert mx.max(accepted).item() == 2


@pytest.mark.parametrize("mass", [0.0005, 0.3])
def test_a_law_that_reaches_beyond_the_vocabulary_is_exact(mass):
    """A draft that is no token is refused for what p says; where much of the law stands on such, all of it."""
    ids = mx.array([[0, 1, 99], [2, -4, 5]], dtype=mx.int32)
    probs = mx.array([[0.6 - mass, 0.4, mass], [0.5, mass, 0.5 - mass]])
    accepted, token, faults, drafts = trials(SparseQ(ids, probs))
    assert exact(accepted, token, drafts)
    share = mx.mean((faults == int(Fault.DRAFTER)).astype(mx.float32)).item()
    assert share == 1.0 if mass > 0.001 else 0.0 < share < 0.01


def test_a_sparse_law_is_the_dense_law():
    ids = mx.array([[0, 2, 5], [1, 3, 6]], dtype=mx.int32)
    probs = mx.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    dense = mx.zeros((2, 7)).at[mx.arange(2)[:, None], ids].add(probs)
    for seed in range(50):
        a, b, c = mx.random.split(mx.random.key(seed), 3)
        drafts = mx.stack([ids[0][mx.random.randint(0, 3, key=a)], ids[1][mx.random.randint(0, 3, key=b)]])
        u, g = mx.random.uniform(shape=(2,), key=c), mx.random.gumbel((7,), key=a)
        one = by_rejection(P, Proposal(drafts, q=SparseQ(ids, probs)), u, g)
        two = by_rejection(P, Proposal(drafts, q=DenseQ(dense)), u, g)
        assert (one.accepted.item(), one.token.item()) == (two.accepted.item(), two.token.item())


def test_no_residual_mass_falls_back_to_the_target():
    """A forced rejection where p == q draws from p, never from outside its support."""
    p = mx.array([[0.6, 0.4, 0.0, 0.0]] * 2)
    proposal = Proposal(mx.array([2], dtype=mx.int32), q=DenseQ(mx.array([[0.6, 0.4, 0.0, 0.0]])))
    tokens = [
        by_rejection(p, proposal, mx.array([0.5]), mx.random.gumbel((4,), key=mx.random.key(i))).token.item()
        for i in range(200)
    ]
    assert set(tokens) == {0, 1}


# Coupled --------------------------------------------------------------------------------------------------------------


def test_coupled_noise_draws_the_target_s_law():
    """argmax(log p + noise) over 10^5 positions of one seed, and independence of neighbouring positions."""
    draws = 100_000  # each has a key of its own, made on the host
    law = mx.array([0.5, 0.25, 0.15, 0.1, 0.0])
    sampler = RowSampler(Sampling(temperature=1.0, seed=5), [0], 5)
    keys = mx.stack([sampler.key(Purpose.COUPLED, i) for i in range(draws)])
    noise = mx.vmap(lambda key: mx.random.gumbel((5,), key=key))(keys)
    picks = mx.argmax(log_of(law) + noise, axis=-1)
    counts = mx.zeros((5,)).at[picks].add(1.0)
    assert LAW_TESTS.follows(counts.tolist(), (law * draws).tolist())
    pairs = mx.zeros((25,)).at[picks[:-1] * 5 + picks[1:]].add(1.0)
    expected = (law[:, None] * law[None]).reshape(-1) * (draws - 1)
    assert LAW_TESTS.follows(pairs.tolist(), expected.tolist())


def test_coupled_acceptance_is_at_least_the_bound():
    """Accept-on-equality with shared noise accepts (1 - TV) / (1 + TV) or more; equal laws accept all."""
    p, q = P[0], LAWS["spread"][0]
    noise = mx.random.gumbel((20_000, 7), key=mx.random.key(2))
    same = mx.argmax(log_of(p) + noise, axis=-1) == mx.argmax(log_of(q) + noise, axis=-1)
    tv = 0.5 * mx.sum(mx.abs(p - q)).item()
    assert mx.mean(same.astype(mx.float32)).item() >= (1 - tv) / (1 + tv) - 0.01


def test_by_equality_counts_the_prefix():
    scores = mx.eye(5)[mx.array([3, 1, 4, 1])]
    for drafts, n, token in (([3, 1, 4], 3, 1), ([3, 9, 4], 1, 1), ([9, 1, 4], 0, 3), ([], 0, 3)):
        verdict = by_equality(scores, Proposal(mx.array(drafts, dtype=mx.int32)))
        assert (verdict.accepted.item(), verdict.token.item()) == (n, token)


# The whole loop -------------------------------------------------------------------------------------------------------

V = 6
TABLE = mx.random.normal((V, V), key=mx.random.key(21)) * 1.5
DRAFT = mx.random.normal((V, V), key=mx.random.key(22)) * 1.5


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("coupled", [False, True], ids=["rejection", "coupled"])
@pytest.mark.parametrize(
    "law",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.8, top_k=3),
        Sampling(temperature=1.0, top_p=0.8),
        Sampling(temperature=1.2, top_k=4, top_p=0.9, min_p=0.1),
    ],
    ids=["plain", "top_k", "top_p", "all"],
)
def test_the_loop_emits_the_chain_s_exact_law(law, coupled, dtype):
    """One long generation through the real loop; transition counts against the exact law of the table (O6, O7).

    The drafter draws conditionally, as a Markov head does, so q rows are those of the realised path.
    """
    target = TableTarget(TABLE.astype(dtype), context=10**9)
    chain = Chain("drawing", (DrawingDrafter(DRAFT, max_draft=8),))
    seeds = (1, 2) if coupled else (None, None)
    counts = mx.zeros((V, V))
    n = 600
    for seed in seeds:
        run = Run(target, [0], chain, max_tokens=n, cap=5, sampling=replace(law, seed=seed), stop_ids=frozenset())
        tokens = mx.array([0, *run.output])
        counts = counts.at[tokens[:-1], tokens[1:]].add(1.0)
        assert sum(r.accepted for r in run.rounds) > n // 10
    law_of = transform(TABLE.astype(dtype), law)
    for last in range(V):
        row = counts[last]
        total = mx.sum(row).item()
        if total >= 50:
            assert LAW_TESTS.follows(row.tolist(), (law_of[last] * total).tolist())


def test_point_mass_proposals_are_exact_through_the_loop():
    target = TableTarget(TABLE, context=10**9)
    chain = Chain("fixed", (ScriptedDrafter(lambda ids, k: [(ids[-1] + 1 + i) % V for i in range(k)]),))
    run = Run(target, [0], chain, max_tokens=1200, cap=3, sampling=Sampling(temperature=1.0), stop_ids=frozenset())
    tokens = mx.array([0, *run.output])
    counts = mx.zeros((V, V)).at[tokens[:-1], tokens[1:]].add(1.0)
    law_of = transform(TABLE, Sampling(temperature=1.0))
    for last in range(V):
        total = mx.sum(counts[last]).item()
        assert LAW_TESTS.follows(counts[last].tolist(), (law_of[last] * total).tolist())


class Perfect(DrawingDrafter):
    """Knows the target's logits, and nothing of what is asked of them but through the draws."""

    def propose(self, context: Any, pending: int, k: int, sampler: RowSampler) -> Proposal:
        draws, last = Draws([sampler], [context.length + 1], k), mx.array([pending])
        for _ in range(k):
            last = draws.next(self.table[last])
        tokens, law = draws.of(0, k)
        return Proposal(tokens, self.source, None if law is None else DenseQ(law), None, self.name, draws.sound(0, k))


SHAPED = {
    "repetition": Sampling(repetition_penalty=1.6),
    "presence": Sampling(presence_penalty=1.0),
    "frequency": Sampling(frequency_penalty=0.5),
    "bias": Sampling(logit_bias={1: 2.0, 3: -2.0, 4: -100.0}),
    "all": Sampling(
        top_k=4,
        top_p=0.9,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        repetition_penalty=1.3,
        logit_bias={1: 1, 5: -100},
    ),
}


@pytest.mark.parametrize("how", ["greedy", "seeded", "free"])
@pytest.mark.parametrize("law", SHAPED)
def test_whatever_shapes_the_law_shapes_the_drafts(law, how):
    """A drafter that is right before penalties and bias is right with them: all of its drafts stay."""
    sampling = replace(SHAPED[law], temperature=0.0 if how == "greedy" else 0.9, seed=7 if how == "seeded" else None)
    chain = Chain("perfect", (Perfect(TABLE),))
    run = Run(TableTarget(TABLE), [0, 2], chain, max_tokens=60, cap=4, sampling=sampling, stop_ids=frozenset())
    assert sum(r.accepted for r in run.rounds) == sum(len(r.drafted) for r in run.rounds) > 40
    assert not run.sequence.distrusted


@given(seed=st.integers(0, 10_000), drafts=st.lists(st.integers(0, V - 1), max_size=5), some=st.booleans())
def test_a_draft_s_penalties_are_those_of_its_row(seed, drafts, some):
    """Also of candidates, where they are few."""
    penalties = Penalties(SHAPED["all"], [0, 2], V)
    penalties.commit([3, 3, seed % V])
    logits = mx.random.normal((len(drafts) + 1, V), key=mx.random.key(seed))
    rows, along = penalties.rows(logits, mx.array(drafts, dtype=mx.int32)), penalties.along()
    ids = mx.array([5, 1, 3]) if some else mx.arange(V)
    for i, row in enumerate(rows):
        shaped = along.shaped(logits[i][ids], ids if some else None)
        assert mx.allclose(mx.maximum(shaped, -100), mx.maximum(row[ids], -100), atol=1e-5)
        if i < len(drafts):
            along.take(mx.array(drafts[i]))


def test_candidates_that_are_all_forbidden_are_a_law_still():
    """Refused by the target, and no fault of the drafter."""
    forbidden = Sampling(temperature=1.0, logit_bias=dict.fromkeys((1, 2), -100.0))
    sampler = RowSampler(forbidden, [0], V)
    draws = Draws([sampler], [1], 1)
    tokens = draws.next(mx.array([[0.5, 0.1]]), mx.array([1, 2]))
    _, law = draws.of(0, 1)
    assert law is not None
    assert abs(mx.sum(law).item() - 1) < 1e-5
    proposal = vetted(Proposal(tokens, q=SparseQ(mx.array([[1, 2]]), law)), 1, V)
    verdict = accept(TABLE[:2], proposal, sampler, 1)
    assert (verdict.accepted.item(), verdict.faults.item()) == (0, 0)
    assert verdict.token.item() not in (1, 2)


def test_draws_of_different_purposes_and_addresses_differ():
    sampler = RowSampler(Sampling(temperature=1.0, seed=9), [0], 4)
    keys = {tuple(sampler.key(p, a).tolist()) for p in Purpose for a in range(500)}
    assert len(keys) == 2000

"""Whether sampling draws from the target's law whatever was proposed: counts of seeded draws against probabilities.

Every number is fixed by a seed, so that a law that holds passes always; knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from engine.backend.host_values import floats, ints
from engine.decoding.verify import accept
from engine.diagnostics.self_test.chi_square import chi_square_p
from engine.diagnostics.self_test.findings import Finding, Gauge
from engine.diagnostics.self_test.tiny_models import Precision
from engine.sampling.sampler import RowSampler, transform
from engine.types import DenseQ, Proposal, Sampling, Source, SparseQ

VOCAB, DRAFTS = 24, 2
ROUNDS = 300
AT_ONCE = 150
LEAST = 1e-5
"""Smallest p value that chance explains: with fixed seeds the same draws come out on every machine but for rounding."""
SEED = 20261201

Propose = Callable[[RowSampler, mx.array], Proposal]


@dataclass(frozen=True, slots=True)
class Case:
    """A law, and what is proposed."""

    name: str
    sampling: Sampling
    propose: Propose
    seeded: bool = False


def nothing(sampler: RowSampler, logits: mx.array) -> Proposal:
    return Proposal(mx.zeros((0,), dtype=mx.int32), Source.TARGET)


def copied(sampler: RowSampler, logits: mx.array) -> Proposal:
    """As lookup: tokens without a law."""
    return Proposal(mx.argsort(-logits)[1 : 1 + DRAFTS].astype(mx.int32), Source.LOOKUP)


def drawn(sampler: RowSampler, logits: mx.array) -> Proposal:
    """As a learned drafter: drawn from a law of its own, over all tokens."""
    tokens, laws = sampler.draw_rows(mx.stack([_other(logits)] * DRAFTS), 1)
    return Proposal(tokens, Source.DRAFT, None if laws is None else DenseQ(laws))


def selected(sampler: RowSampler, logits: mx.array) -> Proposal:
    """As DFlash 2 or a reduced vocabulary: drawn from a law over some tokens."""
    ids = mx.argsort(-logits)[: VOCAB // 2].astype(mx.int32)
    both = [sampler.draw(_other(logits)[ids], 1 + i, ids) for i in range(DRAFTS)]
    laws = [law for _, law in both if law is not None]
    q = SparseQ(mx.stack([ids] * DRAFTS), mx.stack(laws)) if laws else None
    return Proposal(mx.stack([token for token, _ in both]), Source.DRAFT, q)


def _other(logits: mx.array) -> mx.array:
    """A drafter's opinion: related, and wrong."""
    return 0.5 * logits + mx.random.normal(logits.shape, key=mx.random.key(3))


PLAIN = Sampling(temperature=1.0)
TRUNCATED = Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.02)
CASES = (
    Case("plain", PLAIN, nothing),
    Case("truncated", TRUNCATED, nothing),
    Case("behind a copy", TRUNCATED, copied),
    Case("behind a drafter", PLAIN, drawn),
    Case("behind a drafter, truncated", TRUNCATED, drawn),
    Case("behind a selector", PLAIN, selected),
    Case("seeded, behind a drafter", TRUNCATED, drawn, seeded=True),
)


def law(case: Case, dtype: mx.Dtype) -> Gauge:
    """The first token of each round follows the law of the logits. The deviation is the p value's distance from 1."""
    logits = (2.0 * mx.random.normal((VOCAB,), key=mx.random.key(7))).astype(dtype)
    expected = transform(logits, case.sampling)
    counts = [0] * VOCAB
    lines: list[mx.array] = []
    for number in range(ROUNDS):
        sampler = _sampler(case, number)
        proposal = case.propose(sampler, logits)
        verdict = accept(mx.stack([logits] * (1 + len(proposal))), proposal, sampler, 1)
        first = mx.where(verdict.accepted > 0, proposal.tokens[0], verdict.token) if len(proposal) else verdict.token
        lines.append(first)
        if len(lines) == AT_ONCE or number == ROUNDS - 1:
            for token in ints(mx.stack(lines)):
                counts[token] += 1
            lines = []
    p = chi_square_p(counts, [ROUNDS * share for share in floats(expected)])
    gauge = Gauge(1.0 - LEAST)
    gauge.take(1.0 - p, f"p = {p:.2g} after {ROUNDS} draws")
    return gauge


def _sampler(case: Case, number: int) -> RowSampler:
    """One whose draws are fixed by a seed; by the rule of requests without one, unless the case is seeded."""
    seed = SEED + number if case.seeded else SEED
    sampler = RowSampler(
        Sampling(
            temperature=case.sampling.temperature,
            top_p=case.sampling.top_p,
            top_k=case.sampling.top_k,
            min_p=case.sampling.min_p,
            seed=seed,
        ),
        [0],
        VOCAB,
    )
    sampler.coupled = case.seeded
    sampler.round = number
    return sampler


def run(case: Case, precision: Precision) -> Finding:
    return law(case, precision.dtype).finding("sampling law", case.name, precision.name)

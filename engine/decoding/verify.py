"""How many drafts stay, and which token follows them. Pure functions that only build graph.

A drafter is not trusted: what it hands over is made safe to index with (`vetted`), and numbers that are no law cost it
its drafts, never the text. Knows neither where a proposal came from nor what happens to the state afterwards.

`logical_and` and not `&` throughout: MLX 0.32 maps the latter wrongly under `vmap`, by which the statistical tests run
these functions.
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

import mlx.core as mx

from engine.sampling.sampler import RowSampler, log_of
from engine.types import DenseQ, Proposal, SparseQ

TOLERANCE = 1e-3
"""How far the sum of a drafter's law may be from 1: rounding, and no more."""


class Fault(IntFlag):
    """What a round found to be wrong."""

    DRAFTER = 1
    """The drafter's numbers are no law, or a draft is no token. The row follows the target's law all the same."""
    TARGET = 2
    """The target's logits are not numbers: there is no token to emit."""
    SETTINGS = 4
    """The logits are numbers, but penalties, bias and constraints leave no token to emit."""


class Verdict(NamedTuple):
    """All lazy."""

    accepted: mx.array
    """Scalar int32: length n of the accepted prefix, 0..K."""
    token: mx.array
    """Scalar int32: the target's own token after the prefix (replacement, or bonus when n == K)."""
    faults: mx.array
    """Scalar int32, bits of `Fault`. Where TARGET or SETTINGS is set, `token` means nothing."""


def vetted(proposal: Proposal, longest: int, vocab: int) -> Proposal:
    """A proposal as a round may use it: at most `longest` drafts, each an id of the vocabulary.

    The one place where drafts enter a round: whatever a drafter makes, no id outside the vocabulary is ever gathered,
    scattered or emitted. A q of another shape is dropped, for judged as a point mass a draft is exact however it came
    about.
    """
    tokens, q = proposal.tokens[:longest].astype(mx.int32), proposal.q
    k = tokens.shape[0]
    inside = mx.logical_and(tokens >= 0, tokens < vocab)
    sound = inside if proposal.sound is None else mx.logical_and(inside, proposal.sound[:k])
    if isinstance(q, DenseQ):
        q = DenseQ(q.probs[:k]) if q.probs.shape[1:] == (vocab,) else None
    elif isinstance(q, SparseQ):
        known = mx.logical_and(q.ids[:k] >= 0, q.ids[:k] < vocab)
        # What stands on ids that are none is lost to the sum, which then tells.
        q = SparseQ(mx.where(known, q.ids[:k], 0), mx.where(known, q.probs[:k], 0.0))
    if q is None and proposal.q is not None:
        sound = mx.zeros_like(sound)
    confidence = None if proposal.confidence is None else proposal.confidence[:k]
    return Proposal(mx.where(inside, tokens, 0), proposal.source, q, confidence, proposal.drafter, sound)


def accept(logits: mx.array, proposal: Proposal, sampler: RowSampler, position: int) -> Verdict:
    """Judge K drafts by K+1 rows of target logits [K+1, V].

    Row i is the target's prediction after draft i (row 0 after the pending token); `position` is that of the first
    draft. The emitted law is exactly the request's law of the target, whatever the proposal.
    """
    raw, logits = logits, sampler.processed(logits, proposal.tokens)
    if sampler.greedy:
        verdict = by_equality(logits, proposal)
    elif sampler.coupled:
        noise = sampler.noise(position, logits.shape[0])
        verdict = by_equality(log_of(sampler.probs(logits)) + noise, proposal)
    else:
        uniforms = sampler.uniforms(max(1, len(proposal)))
        verdict = by_rejection(sampler.probs(logits), proposal, uniforms, sampler.residual_noise())
    faults = verdict.faults
    if sampler.processors:
        # Where nothing is left although the target said something, what was asked of its logits is at fault.
        said = mx.isfinite(mx.max(mx.take(raw, verdict.accepted, axis=0)))
        moved = mx.where(said, int(Fault.SETTINGS - Fault.TARGET), 0)
        faults = faults + mx.where(faults >= int(Fault.TARGET), moved, 0)
    return verdict._replace(faults=faults.astype(mx.int32))


def by_equality(scores: mx.array, proposal: Proposal) -> Verdict:
    """Accept while the drafts equal the target's choice, which is the best of its scores [K+1, V]."""
    choice = mx.argmax(scores, axis=-1).astype(mx.int32)
    # NaN where any score is, -inf where none is left: neither is a choice.
    chosen = mx.isfinite(mx.max(scores, axis=-1))
    if not len(proposal):
        return Verdict(mx.array(0, dtype=mx.int32), choice[0], _faults(chosen[0]))
    n = _prefix(mx.logical_and(choice[:-1] == proposal.tokens, chosen[:-1]))
    return Verdict(n, mx.take(choice, n), _faults(mx.take(chosen, n), proposal.sound))


def by_rejection(probs: mx.array, proposal: Proposal, uniforms: mx.array, gumbel: mx.array) -> Verdict:
    """Accept draft i with probability min(1, p_i/q_i); replace the first refused one by a draw from max(p - q, 0).

    probs [K+1, V] float32, uniforms [>=K] in [0, 1), gumbel [V]. Leviathan et al., arXiv 2211.17192, algorithm 1. A
    draft whose q is no law is refused whatever it is, and the replacement comes from p itself, as it does where
    rounding leaves no residual mass: the law is p's in every case, and so is the support.
    """
    k = len(proposal)
    if not k:
        token, drawn = _draw(probs[0], gumbel)
        return Verdict(mx.array(0, dtype=mx.int32), token, _faults(drawn))
    mass, lawful = _laws(proposal)
    p_draft = probs[mx.arange(k), proposal.tokens]
    n = _prefix(mx.logical_and(uniforms[:k] * (_q_of_drafts(proposal) / mass) < p_draft, lawful))
    p, refused = mx.take(probs, n, axis=0), mx.minimum(n, k - 1)
    q = _q_row(proposal, refused, p.shape[-1]) / mx.take(mass, refused)
    residual = mx.maximum(p - q, 0.0)
    use_residual = mx.logical_and(mx.logical_and(n < k, mx.take(lawful, refused)), mx.sum(residual) > 0.0)
    token, drawn = _draw(mx.where(use_residual, residual, p), gumbel)
    return Verdict(n, token, _faults(drawn, lawful))


def _laws(proposal: Proposal) -> tuple[mx.array, mx.array]:
    """The mass of each q [K], and whether draft i is a draw from a law [K]: finite, nowhere negative, of mass 1.

    A draft that is no token does not count, and the others are then draws from what is left, since laws are taken
    relative to their mass. Nothing else of draft i may be asked here: it would bias what follows.
    """
    q, k = proposal.q, len(proposal)
    sound = mx.ones((k,), dtype=mx.bool_) if proposal.sound is None else proposal.sound
    if q is None:
        return mx.ones((k,), dtype=mx.float32), sound
    mass = mx.sum(q.probs, axis=-1)
    # Written so that NaN, which compares with nothing, is no law.
    law = mx.logical_and(mx.all(q.probs >= 0.0, axis=-1), mx.abs(mass - 1.0) <= TOLERANCE)
    return mass, mx.logical_and(sound, law)


def _faults(chosen: mx.array, sound: mx.array | None = None) -> mx.array:
    """Bits of `Fault`: unless the target chose a token, and unless every draft is sound."""
    faults = mx.where(chosen, 0, int(Fault.TARGET))
    if sound is not None:
        faults = faults + mx.where(mx.all(sound), 0, int(Fault.DRAFTER))
    return faults.astype(mx.int32)


def _prefix(match: mx.array) -> mx.array:
    """Length of the leading run of True in [K]."""
    return mx.sum(mx.cumprod(match.astype(mx.int32))).astype(mx.int32)


def _draw(weights: mx.array, gumbel: mx.array) -> tuple[mx.array, mx.array]:
    """A token by the Gumbel-max trick, and whether there was one to draw; the weights need not sum to one."""
    scores = log_of(weights) + gumbel
    return mx.argmax(scores).astype(mx.int32), mx.isfinite(mx.max(scores))


def _q_of_drafts(proposal: Proposal) -> mx.array:
    """q_i(d_i) as [K]."""
    q, k = proposal.q, len(proposal)
    if q is None:
        return mx.ones((k,), dtype=mx.float32)
    if isinstance(q, DenseQ):
        return q.probs[mx.arange(k), proposal.tokens]
    return mx.sum(mx.where(q.ids == proposal.tokens[:, None], q.probs, 0.0), axis=-1)


def _q_row(proposal: Proposal, row: mx.array, vocab: int) -> mx.array:
    """q of one (lazily known) row, over the whole vocabulary."""
    q = proposal.q
    if isinstance(q, DenseQ):
        return mx.take(q.probs, row, axis=0)
    zeros = mx.zeros((vocab,), dtype=mx.float32)
    if isinstance(q, SparseQ):
        return zeros.at[mx.take(q.ids, row, axis=0)].add(mx.take(q.probs, row, axis=0))
    return zeros.at[mx.take(proposal.tokens, row)].add(1.0)

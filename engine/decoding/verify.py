"""How many drafts stay, and which token follows them. Pure functions that only build graph.

Knows neither where a proposal came from nor what happens to the state afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from engine.sampling.sampler import RowSampler, log_of
from engine.types import DenseQ, Proposal, SparseQ


class Verdict(NamedTuple):
    """Both lazy."""

    accepted: mx.array
    """Scalar int32: length n of the accepted prefix, 0..K."""
    token: mx.array
    """Scalar int32: the target's own token after the prefix (replacement, or bonus when n == K)."""


def accept(logits: mx.array, proposal: Proposal, sampler: RowSampler, position: int) -> Verdict:
    """Judge K drafts by K+1 rows of target logits [K+1, V].

    Row i is the target's prediction after draft i (row 0 after the pending token); `position` is that of the first
    draft. The emitted law is exactly the request's law of the target, whatever the proposal.
    """
    logits = sampler.processed(logits, proposal.tokens)
    if sampler.greedy:
        return by_equality(mx.argmax(logits, axis=-1).astype(mx.int32), proposal.tokens)
    probs = sampler.probs(logits)
    if sampler.coupled:
        noise = sampler.noise(position, probs.shape[0])
        return by_equality(mx.argmax(log_of(probs) + noise, axis=-1).astype(mx.int32), proposal.tokens)
    return by_rejection(probs, proposal, sampler.uniforms(max(1, len(proposal))), sampler.residual_noise())


def by_equality(choice: mx.array, drafts: mx.array) -> Verdict:
    """Accept while the drafts equal the target's choice. choice [K+1], drafts [K], both int32."""
    if not drafts.shape[0]:
        return Verdict(mx.array(0, dtype=mx.int32), choice[0])
    n = _prefix(choice[:-1] == drafts)
    return Verdict(n, mx.take(choice, n))


def by_rejection(probs: mx.array, proposal: Proposal, uniforms: mx.array, gumbel: mx.array) -> Verdict:
    """Accept draft i with probability min(1, p_i/q_i); replace the first refused one by a draw from max(p - q, 0).

    probs [K+1, V] float32, uniforms [>=K] in [0, 1), gumbel [V]. Leviathan et al., arXiv 2211.17192, algorithm 1. Where
    rounding leaves no residual mass the replacement comes from p itself; the support is p's in every case.
    """
    k = len(proposal)
    if not k:
        return Verdict(mx.array(0, dtype=mx.int32), _draw(probs[0], gumbel))
    rows, drafts = mx.arange(k), proposal.tokens
    p_draft = probs[rows, drafts]
    q_draft = _q_of_drafts(proposal)
    n = _prefix(uniforms[:k] * q_draft < p_draft)
    p = mx.take(probs, n, axis=0)
    refused = mx.minimum(n, k - 1)
    residual = mx.maximum(p - _q_row(proposal, refused, p.shape[-1]), 0.0)
    use_p = (n == k) | (mx.sum(residual) <= 0.0)
    return Verdict(n, _draw(mx.where(use_p, p, residual), gumbel))


def _prefix(match: mx.array) -> mx.array:
    """Length of the leading run of True in [K]."""
    return mx.sum(mx.cumprod(match.astype(mx.int32))).astype(mx.int32)


def _draw(weights: mx.array, gumbel: mx.array) -> mx.array:
    """A token by the Gumbel-max trick; the weights need not sum to one."""
    return mx.argmax(log_of(weights) + gumbel).astype(mx.int32)


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

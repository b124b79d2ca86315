"""The training loss over the draft vocabulary, computed together with its gradient.

    L = Σ w (ce · CE + l1 · ‖q - p‖₁) / Σ w

q is the draft's softmax; p is the target's, given by its K likeliest draft tokens (renormalised; K = all of them makes
it exact). The rows are taken in chunks whose logits stay in the cache, and the gradient with respect to the hidden rows
is formed while the logits are there: they are never stored for a second pass. Knows no drafter architecture.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from engine.training.model.fastmath import exp_nonpositive

CHUNK = 256
"""Rows at a time: 256 x 5 000 float32 logits are 5 MB."""


class Targets(NamedTuple):
    """What R rows should predict, in draft ids."""

    ids: mx.array
    """[R, K] int32: the target's likeliest draft tokens."""
    probs: mx.array
    """[R, K] float32, rows sum to 1."""
    labels: mx.array
    """[R] int32: the token that came; 0 where `weights` is 0."""
    weights: mx.array
    """[R] float32: position decay, 0 for rows that are not supervised."""


class Fused(NamedTuple):
    loss: mx.array
    """Scalar."""
    grad: mx.array
    """[R, H]: d loss / d hidden."""
    accept: mx.array
    """[R]: 1 - ½‖q - p‖₁, the expected acceptance of each row."""
    hit: mx.array
    """[R] bool: the draft's argmax is the target's."""


def _chunk(
    hidden: mx.array, head: mx.array, t: Targets, ce: float, l1: float
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """(per-row loss, d(weighted loss)/d hidden, accept, hit) of one chunk; weights already divided by their sum."""
    logits = hidden @ head.T
    top = mx.max(logits, axis=-1, keepdims=True)
    e = exp_nonpositive(logits - top)
    total = mx.sum(e, axis=-1, keepdims=True)
    at = mx.take_along_axis(logits, t.ids, axis=-1)
    q = mx.exp(at - top) / total
    sign = mx.where(q >= t.probs, 1.0, -1.0)
    inside = mx.sum(q, axis=-1, keepdims=True)
    tail = mx.maximum(1.0 - inside, 0.0)
    distance = mx.sum(mx.abs(q - t.probs), axis=-1, keepdims=True) + tail
    mean_sign = mx.sum(sign * q, axis=-1, keepdims=True) + tail
    label = t.labels[:, None]
    cross = mx.log(total) + top - mx.take_along_axis(logits, label, axis=-1)
    w = t.weights[:, None]
    dense = e * (w * (ce + l1 * (1.0 - mean_sign)) / total)
    rows = mx.arange(hidden.shape[0])[:, None]
    dense = dense.at[rows, t.ids].add(w * l1 * q * (sign - 1.0))
    dense = dense.at[rows, label].add(-ce * w)
    hit = mx.take_along_axis(logits, t.ids[:, :1], axis=-1) >= top
    return (ce * cross + l1 * distance)[:, 0], dense @ head, 1.0 - 0.5 * distance[:, 0], hit[:, 0]


def fused(hidden: mx.array, head: mx.array, targets: Targets, ce: float, l1: float) -> Fused:
    """Loss and gradient of hidden [R, H] against the frozen head [Vd, H]. Builds graph only.

    `targets.ids[:, 0]` must be the likeliest token.
    """
    w = targets.weights / mx.maximum(mx.sum(targets.weights), 1e-6)
    targets = targets._replace(weights=w)
    parts = [
        _chunk(hidden[i : i + CHUNK], head, Targets(*(x[i : i + CHUNK] for x in targets)), ce, l1)
        for i in range(0, hidden.shape[0], CHUNK)
    ]
    losses, grads, accepts, hits = (mx.concatenate(list(p)) for p in zip(*parts, strict=True))
    return Fused(mx.sum(losses * w), grads, accepts, hits)


def attach(hidden: mx.array, result: Fused) -> mx.array:
    """A scalar whose value is the loss and whose gradient with respect to `hidden` is the one already computed."""
    grad = mx.stop_gradient(result.grad)
    linear = mx.sum(hidden * grad)
    return mx.stop_gradient(result.loss - linear) + linear

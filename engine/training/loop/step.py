"""One training step: a batch laid out by `corpus` through `model` and `loss`, and its gradients.

Knows no files and no schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

from engine.training.data.blocks import Batch
from engine.training.model import loss, model


@dataclass(frozen=True, slots=True)
class Frozen:
    """What is borrowed from the target and never trained."""

    embed: mx.array
    """[V, H], raw."""
    head: mx.array
    """[Vd, H]: the draft vocabulary's rows of the output matrix."""
    whiten: mx.array
    """[m, H, H]"""


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the parts of the loss."""

    ce: float = 0.1
    l1: float = 0.9
    confidence: float = 1.0


class Stats(NamedTuple):
    """Of one step, per draft position where [N]."""

    loss: mx.array
    accept: mx.array
    """[N]: expected acceptance at temperature 1."""
    hit: mx.array
    """[N]: share of rows whose best token is the target's."""


def whiten(features: mx.array, maps: mx.array) -> mx.array:
    """[..., m*H] -> [..., m*H]"""
    m, h, _ = maps.shape
    parts = features.astype(mx.float32).reshape(*features.shape[:-1], m, h)
    return mx.concatenate([parts[..., i, :] @ maps[i] for i in range(m)], axis=-1)


def to_block(shape: model.Shape, frozen: Frozen, batch: Batch, noise: mx.array | None = None) -> model.Block:
    """The batch as the model takes it. `noise` is added to the whitened features."""
    tokens = mx.array(batch.tokens)
    h = shape.hidden
    previous = frozen.embed[tokens[..., :-1]] if shape.rank else mx.zeros((*batch.labels.shape, h))
    features = whiten(mx.array(batch.features), frozen.whiten)
    return model.Block(
        features if noise is None else features + noise,
        mx.array(batch.anchors),
        frozen.embed[tokens[..., 0]],
        frozen.embed[shape.mask_id],
        previous,
    )


def to_targets(batch: Batch) -> loss.Targets:
    k = batch.ids.shape[-1]
    parts = (batch.ids.reshape(-1, k), batch.probs.reshape(-1, k), batch.labels.reshape(-1), batch.weights.reshape(-1))
    return loss.Targets(*(mx.array(x) for x in parts))


def objective(
    shape: model.Shape,
    params: model.Params,
    block: model.Block,
    head: mx.array,
    targets: loss.Targets,
    weights: Weights,
) -> tuple[mx.array, Stats]:
    """Scalar loss, and statistics that no gradient flows through."""
    rows = model.forward(shape, params, block)
    scored = rows.scored.reshape(-1, shape.hidden)
    result = loss.fused(mx.stop_gradient(scored), head, targets, weights.ce, weights.l1)
    total = loss.attach(scored, result)
    w, accept = targets.weights, mx.stop_gradient(result.accept)
    if shape.confidence:
        bce = nn.losses.binary_cross_entropy(
            model.confidence_logits(params, rows).reshape(-1), accept, reduction="none"
        )
        total = total + weights.confidence * mx.sum(w * bce) / mx.maximum(mx.sum(w), 1e-6)
    used = (w > 0).reshape(-1, shape.drafts).astype(mx.float32)
    count = mx.maximum(used.sum(0), 1.0)
    by_position = [(x.astype(mx.float32).reshape(used.shape) * used).sum(0) / count for x in (accept, result.hit)]
    return total, Stats(mx.stop_gradient(total), *by_position)


def gradients(
    shape: model.Shape,
    params: model.Params,
    frozen: Frozen,
    batch: Batch,
    weights: Weights,
    noise: mx.array | None = None,
) -> tuple[Stats, model.Params]:
    """Statistics and gradients of one batch. Builds graph only."""
    block, targets = to_block(shape, frozen, batch, noise), to_targets(batch)

    def f(p: model.Params) -> tuple[mx.array, Stats]:
        return objective(shape, p, block, frozen.head, targets, weights)

    (_, stats), grads = mx.value_and_grad(f)(params)
    return stats, grads

"""AdamW, gradient clipping and the learning-rate schedule, as functions of plain trees.

The state is a tree of arrays, so that a checkpoint holds everything that the next step depends on.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

Tree = Any
_BETA1, _BETA2, _EPS = 0.9, 0.98, 1e-8


def _step(
    p: mx.array, g: mx.array, m: mx.array, v: mx.array, scale: mx.array, rate: mx.array, decay: mx.array
) -> tuple[mx.array, ...]:
    g = g * scale
    m = _BETA1 * m + (1.0 - _BETA1) * g
    v = _BETA2 * v + (1.0 - _BETA2) * g * g
    return p * decay - rate * m * mx.rsqrt(v + _EPS * _EPS), m, v


@cache
def _compiled() -> Any:
    """One fused pass over a parameter instead of a dozen."""
    return mx.compile(_step)


def start(params: Tree) -> Tree:
    """Moments for `params`."""
    return {"m": tree_map(mx.zeros_like, params), "v": tree_map(mx.zeros_like, params)}


def norm(grads: Tree) -> mx.array:
    """Length of all gradients together. Summed by name: a tree that was read back may be in another order, and a
    resumed run must round as the uninterrupted one does."""
    parts: list[tuple[str, mx.array]] = sorted(tree_flatten(grads), key=lambda pair: pair[0])  # pyright: ignore[reportAssignmentType]
    return mx.sqrt(sum((mx.sum(g * g) for _, g in parts), start=mx.array(0.0)))


def update(
    params: Tree, grads: Tree, moments: Tree, *, step: int, rate: float, clip: float, weight_decay: float
) -> tuple[Tree, Tree, mx.array]:
    """One AdamW step (`step` counts from 0). Returns new parameters, new moments and the gradient norm."""
    length = norm(grads)
    scale = mx.minimum(1.0, clip / (length + 1e-6))
    # Bias correction as one factor of the rate.
    corrected = mx.array(rate * math.sqrt(1.0 - _BETA2 ** (step + 1)) / (1.0 - _BETA1 ** (step + 1)))
    decay = mx.array(1.0 - rate * weight_decay)
    done = tree_map(
        lambda p, g, m, v: _compiled()(p, g, m, v, scale, corrected, decay), params, grads, moments["m"], moments["v"]
    )

    def pick(i: int) -> Tree:
        return tree_map(lambda t: t[i], done, is_leaf=lambda t: isinstance(t, tuple))

    return pick(0), {"m": pick(1), "v": pick(2)}, length


def schedule(progress: float, peak: float, warmup: float = 0.04) -> float:
    """Linear warm-up over the first share of the run, then half a cosine to zero. progress is 0..1."""
    if progress < warmup:
        return peak * (0.02 + 0.98 * progress / warmup)
    return peak * 0.5 * (1.0 + math.cos(math.pi * min(1.0, (progress - warmup) / (1.0 - warmup))))

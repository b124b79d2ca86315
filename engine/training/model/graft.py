"""A DFlash from a DSpark: the Markov head's knowledge of the anchor moves into one more attention head.

A DFlash has no Markov head, so what followed from the anchor token must come from the anchor's own row. The new head
attends from that row to itself, and carries the linear part of the Markov map, as far as its width goes, through its
values. Everything else is taken over as it is.
"""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np

from engine.errors import UsageError
from engine.training.data.blocks import Floats
from engine.training.model import model, warmstart


def flash_shape(shape: model.Shape) -> model.Shape:
    """Of the DFlash that grows out of a DSpark of this shape."""
    return replace(shape, rank=0, confidence=False, heads=shape.heads + 1, kv_heads=shape.kv_heads + 1)


def spark_shape(shape: model.Shape) -> model.Shape:
    """The other way round: of the DSpark that a DFlash of this shape grows out of."""
    heads = shape.heads - 1
    return replace(shape, rank=shape.head_dim, confidence=True, heads=heads, kv_heads=heads, logits_start=0)


def adopt(params: model.Params, old: model.Shape, new: model.Shape, probe: model.Block) -> model.Params:
    """Parameters of shape `new` made from a DSpark's of shape `old`. `probe` is any batch: it says how large things
    are.

    Raises:
        UsageError: the two do not fit each other.
    """
    if old == new:
        return params
    if replace(flash_shape(old), logits_start=new.logits_start, block=new.block) != new or not old.rank:
        raise UsageError(
            "The earlier run's drafter has other sizes; a drafter starts from one of its own shape, and a DFlash also "
            "from a DSpark."
        )
    first = params["layers"][0]
    size = _residual_size(params, old, probe)
    key, query = _directions(params, old, probe)
    near = mx.full((old.head_dim,), 2.0)
    markov = params["markov"]
    left, values, right = np.linalg.svd(np.array(markov["out"] @ markov["linear"]))
    root = np.sqrt(values[: old.head_dim])
    read, write = mx.array(root[:, None] * right[: old.head_dim]), mx.array(left[:, : old.head_dim] * root)
    grown = {
        **first,
        "q_proj": mx.concatenate([first["q_proj"], mx.outer(near, query)]),
        "k_proj": mx.concatenate([first["k_proj"], mx.outer(near, key)]),
        "v_proj": mx.concatenate([first["v_proj"], read / first["input_layernorm"]]),
        "o_proj": mx.concatenate([first["o_proj"], write * (size / params["norm"])[:, None]], axis=1),
    }
    kept = {name: params[name] for name in ("fc", "hidden_norm", "norm")}
    return {**kept, "layers": [grown, *(_widened(layer, old) for layer in params["layers"][1:])]}


def _widened(layer: model.Params, shape: model.Shape) -> model.Params:
    """A later layer with one more head. It says nothing yet, and its output learns first: its output matrix is zero,
    the others are copies of the first head's."""
    first = slice(0, shape.head_dim)
    grown = {name: mx.concatenate([layer[name], layer[name][first]]) for name in ("q_proj", "k_proj", "v_proj")}
    silent = mx.zeros((shape.hidden, shape.head_dim))
    return {**layer, **grown, "o_proj": mx.concatenate([layer["o_proj"], silent], axis=1)}


def _residual_size(params: model.Params, shape: model.Shape, probe: model.Block) -> float:
    """Typical root mean square of the residual stream before the final norm."""
    rows = model.residual(shape, params, probe)[:, :, 0]
    return float(np.array(mx.sqrt(mx.mean(rows * rows, axis=-1))).mean())


def _directions(params: model.Params, shape: model.Shape, probe: model.Block) -> tuple[mx.array, mx.array]:
    """(key, query): the first is 1 on anchors and -1 on masks and context, the second 1 on anchors and 0 on masks."""
    weight = params["layers"][0]["input_layernorm"]
    anchors = np.array(model.rms_norm(probe.embedded, weight, shape.eps)).reshape(-1, shape.hidden)
    mask = np.array(model.rms_norm(probe.mask, weight, shape.eps))
    context = np.array(model.context(params, probe.features, shape.eps)).reshape(-1, shape.hidden)
    masks = np.tile(mask, (len(anchors), 1))

    def solve(*groups: tuple[Floats, float]) -> mx.array:
        rows = np.concatenate([rows for rows, _ in groups])
        wanted = np.concatenate([np.full(len(rows), value, np.float32) for rows, value in groups])
        return mx.array(warmstart.solve(rows, wanted))

    return solve((anchors, 1.0), (masks, -1.0), (context, -1.0)), solve((anchors, 1.0), (masks, 0.0))

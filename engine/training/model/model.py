"""The drafter as it is trained: parameters in a plain tree, and the forward over many anchors at once.

The backbone is the one every loader knows (Qwen3 layers over injected context). What differs from the exported file:
features come whitened (the map is folded into `fc` at export), and the Markov tables are products of small matrices
with the frozen embedding and head (multiplied out at export), so that they cost nothing per step and cover rare tokens.
Knows no files and no optimiser.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from engine.training.model.fastmath import exp, silu
from engine.training.model.warmstart import Start

Params = dict[str, Any]
_MASKED = -1e9


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a drafter. `hidden` is the target's."""

    hidden: int
    vocab: int
    draft_vocab: int
    taps: tuple[int, ...]
    layers: int = 1
    heads: int = 9
    kv_heads: int = 9
    head_dim: int = 64
    intermediate: int = 1536
    block: int = 5
    """Rows of a block, the anchor's included."""
    logits_start: int = 0
    """First row that predicts: 0 (DSpark) or 1 (DFlash)."""
    rank: int = 64
    """Of the Markov head; 0 leaves it out."""
    confidence: bool = True
    mask_id: int = 0
    theta: float = 10000.0
    eps: float = 1e-6

    @property
    def drafts(self) -> int:
        return self.block - self.logits_start

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Shape:
        """What `as_dict` said, also after a trip through JSON."""
        values: dict[str, Any] = {**data, "taps": tuple(data["taps"])}
        return cls(**values)


class Block(NamedTuple):
    """A anchors in each of S sequences of T rows; N drafts for each anchor."""

    features: mx.array
    """[S, T, m*H], whitened."""
    anchors: mx.array
    """[S, A] int32: position of the anchor; context rows before it are visible."""
    embedded: mx.array
    """[S, A, H]: embedding of the anchor."""
    mask: mx.array
    """[H]: embedding of the mask token."""
    previous: mx.array
    """[S, A, N, H]: embeddings of the token before each predicted one, teacher-forced; empty without a Markov head."""


class Rows(NamedTuple):
    """What the block's predicting rows say, [S, A, N, ...]."""

    hidden: mx.array
    """After the final norm."""
    markov: mx.array | None
    """[S, A, N, r]: W1[previous]."""
    scored: mx.array
    """Input of the frozen head: hidden plus the Markov bias in the head's input space."""


def init(shape: Shape, start: Start, key: mx.array) -> Params:
    """Parameters that already predict about as well as a linear map can; layers after the first add nothing yet.

    The heads of the first layer look at the row before the anchor (constant queries and keys whose rotated product
    falls with distance), values and output pass it through, and the final norm restores the regression's scale.
    """
    keys = iter(mx.random.split(key, 16 + 16 * shape.layers))

    def matrix(rows: int, columns: int, gain: float = 1.0) -> mx.array:
        return mx.random.normal((rows, columns), key=next(keys)) * (gain / columns**0.5)

    h, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    straight = q == h == kv
    params: Params = {
        "fc": mx.array(start.context),
        "hidden_norm": mx.ones((h,)),
        "norm": mx.full((h,), start.scale),
        "layers": [],
    }
    near = _recency(shape.kv_heads, shape.head_dim, next(keys))
    # With a tied head the anchor's own embedding, which the residual carries, would vote for a repeat: it is outvoted.
    gain = 2.5
    queries = mx.repeat(near, shape.heads // shape.kv_heads, axis=0)
    for i in range(shape.layers):
        first = i == 0
        layer = {
            "input_layernorm": mx.ones((h,)),
            "post_attention_layernorm": mx.ones((h,)),
            "q_proj": matrix(q, h, 0.5),
            "k_proj": matrix(kv, h, 0.5),
            "v_proj": matrix(kv, h, 0.1) + gain * mx.eye(h) if straight else matrix(kv, h),
            "o_proj": gain * mx.eye(h) if straight and first else matrix(h, q, 0.1),
            "q_norm": mx.full((shape.head_dim,), 1.5 if first else 1.0),
            "k_norm": mx.full((shape.head_dim,), 1.5 if first else 1.0),
            "gate_proj": matrix(shape.intermediate, h),
            "up_proj": matrix(shape.intermediate, h),
            "down_proj": matrix(h, shape.intermediate, 0.3),
        }
        if first:
            layer["q_proj"] = layer["q_proj"] + mx.outer(queries.reshape(-1), mx.array(start.one))
            layer["k_proj"] = layer["k_proj"] + mx.outer(near.reshape(-1), mx.array(start.side))
        params["layers"].append(layer)
    if shape.rank:
        inner = 4 * shape.rank
        left, values, right = np.linalg.svd(start.token)
        root = np.sqrt(values[: shape.rank])
        params["markov"] = {
            "linear": mx.array(root[:, None] * right[: shape.rank]),
            "inner": matrix(inner, h),
            "outer": matrix(shape.rank, inner, 0.1),
            "out": mx.array(left[:, : shape.rank] * root),
        }
    if shape.confidence:
        params["confidence"] = {"proj": mx.zeros((1, h + shape.rank)), "bias": mx.zeros((1,))}
    return params


def _recency(heads: int, dim: int, key: mx.array) -> mx.array:
    """[heads, dim]: vectors whose rotated product with themselves falls steadily over the first dozen positions and
    stays low: frequencies fast enough to tell neighbours apart, with slower ones against the wrap-around."""
    half = dim // 2
    low, high = max(1, half // 16), max(3, half * 3 // 8)
    band = mx.array([1.0 if low <= i < high else 0.0 for i in range(half)])
    vectors = mx.random.normal((heads, 2, half), key=key) * band
    vectors = vectors / mx.sqrt(mx.mean(vectors**2, axis=(1, 2), keepdims=True))
    return 2.0 * vectors.reshape(heads, dim)


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    return mx.fast.rms_norm(x, weight, eps)


def markov_rows(params: Params, embeddings: mx.array) -> mx.array:
    """W1 for tokens given by their raw embeddings [..., H] -> [..., r]."""
    p = params["markov"]
    x = rms_norm(embeddings, None, 1e-6)
    return x @ p["linear"].T + silu(x @ p["inner"].T) @ p["outer"].T


def rope_table(length: int, dim: int, theta: float) -> tuple[mx.array, mx.array]:
    """cos and sin [length, dim / 2]."""
    frequency = theta ** (-mx.arange(0, dim, 2, dtype=mx.float32) / dim)
    angle = mx.arange(length, dtype=mx.float32)[:, None] * frequency
    return mx.cos(angle), mx.sin(angle)


def rope(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Split-half rotation of the last axis; cos and sin broadcast against half of it."""
    a, b = mx.split(x, 2, axis=-1)
    return mx.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def context(params: Params, features: mx.array, eps: float) -> mx.array:
    """[..., m*H] -> [..., H]: once per token, shared by all layers."""
    return rms_norm(features @ params["fc"].T, params["hidden_norm"], eps)


def _heads(x: mx.array, n: int) -> mx.array:
    return x.reshape(*x.shape[:-1], n, -1)


class _Geometry(NamedTuple):
    hide: mx.array
    """[S, 1, 1, A, 1, T]: 0 where a context row is visible, very negative elsewhere."""
    block: tuple[mx.array, mx.array]
    """cos, sin at the block's positions, [S, A, B, 1, hd/2]."""
    rows: tuple[mx.array, mx.array]
    """cos, sin at the context's positions, [T, 1, hd/2]."""


def _geometry(shape: Shape, anchors: mx.array, length: int) -> _Geometry:
    cos, sin = rope_table(length + shape.block + 1, shape.head_dim, shape.theta)
    at = anchors[..., None] + mx.arange(shape.block)
    visible = mx.arange(length) < anchors[..., None]
    hide = mx.where(visible, 0.0, _MASKED)[:, None, None, :, None, :]
    return _Geometry(hide, (cos[at][..., None, :], sin[at][..., None, :]), (cos[:length, None], sin[:length, None]))


def _attend(
    shape: Shape, g: _Geometry, q: mx.array, block: tuple[mx.array, mx.array], ctx: tuple[mx.array, mx.array]
) -> mx.array:
    """q [S, A, B, nq, hd] over context k, v [S, T, nkv, hd] and its own block's k, v [S, A, B, nkv, hd]."""
    s, a, b, nq, hd = q.shape
    n, group = shape.kv_heads, nq // shape.kv_heads
    k_ctx, v_ctx = (x.transpose(0, 2, 1, 3) for x in ctx)
    k_own, v_own = (x.transpose(0, 3, 1, 2, 4) for x in block)
    q = (q * hd**-0.5).reshape(s, a, b, n, group, hd).transpose(0, 3, 4, 1, 2, 5)
    far = (q.reshape(s, n, group * a * b, hd) @ k_ctx.swapaxes(-1, -2)).reshape(s, n, group, a, b, -1) + g.hide
    near = q @ k_own[:, :, None].swapaxes(-1, -2)
    # One softmax over two score arrays, without joining them.
    top = mx.stop_gradient(mx.maximum(mx.max(far, axis=-1, keepdims=True), mx.max(near, axis=-1, keepdims=True)))
    far, near = exp(far - top), exp(near - top)
    total = mx.sum(far, axis=-1, keepdims=True) + mx.sum(near, axis=-1, keepdims=True)
    out = (far.reshape(s, n, group * a * b, -1) @ v_ctx).reshape(s, n, group, a, b, hd)
    out = (out + near @ v_own[:, :, None]) / total
    return out.transpose(0, 3, 4, 1, 2, 5).reshape(s, a, b, nq * hd)


class _Projected(NamedTuple):
    q: mx.array
    k: mx.array
    v: mx.array


def _project(shape: Shape, p: Params, h: mx.array) -> _Projected:
    """Queries, keys and values of block rows [S, A, B, H] before rope, [S, A, B, n, hd]."""
    x = rms_norm(h, p["input_layernorm"], shape.eps)
    q = rms_norm(_heads(x @ p["q_proj"].T, shape.heads), p["q_norm"], shape.eps)
    k = rms_norm(_heads(x @ p["k_proj"].T, shape.kv_heads), p["k_norm"], shape.eps)
    return _Projected(q, k, _heads(x @ p["v_proj"].T, shape.kv_heads))


def _first(shape: Shape, p: Params, batch: Block) -> tuple[mx.array, _Projected]:
    """Input rows of the first layer and their projections. All mask rows are the same: they are projected once."""
    anchor, mask = batch.embedded[:, :, None, :], batch.mask[None, None, None, :]

    def rows(x: mx.array, y: mx.array) -> mx.array:
        return mx.concatenate([x, mx.broadcast_to(y, (*x.shape[:2], shape.block - 1, *x.shape[3:]))], axis=2)

    pairs = zip(_project(shape, p, anchor), _project(shape, p, mask), strict=True)
    return rows(anchor, mask), _Projected(*(rows(x, y) for x, y in pairs))


def _layer(shape: Shape, p: Params, g: _Geometry, h: mx.array, ctx: mx.array, x: _Projected) -> mx.array:
    k_ctx = rms_norm(_heads(ctx @ p["k_proj"].T, shape.kv_heads), p["k_norm"], shape.eps)
    v_ctx = _heads(ctx @ p["v_proj"].T, shape.kv_heads)
    own = (rope(x.k, *g.block), x.v)
    h = h + _attend(shape, g, rope(x.q, *g.block), own, (rope(k_ctx, *g.rows), v_ctx)) @ p["o_proj"].T
    y = rms_norm(h, p["post_attention_layernorm"], shape.eps)
    return h + (silu(y @ p["gate_proj"].T) * (y @ p["up_proj"].T)) @ p["down_proj"].T


def residual(shape: Shape, params: Params, batch: Block) -> mx.array:
    """[S, A, B, H]: every row of every block after the last layer."""
    ctx = context(params, batch.features, shape.eps)
    g = _geometry(shape, batch.anchors, batch.features.shape[1])
    h, x = _first(shape, params["layers"][0], batch)
    for i, p in enumerate(params["layers"]):
        h = _layer(shape, p, g, h, ctx, x if i == 0 else _project(shape, p, h))
    return h


def backbone(shape: Shape, params: Params, batch: Block) -> mx.array:
    """[S, A, N, H]: the predicting rows, after the final norm."""
    return rms_norm(residual(shape, params, batch)[:, :, shape.logits_start :], params["norm"], shape.eps)


def forward(shape: Shape, params: Params, batch: Block) -> Rows:
    """Builds the graph of the whole drafter up to the input of the frozen head."""
    hidden = backbone(shape, params, batch)
    if not shape.rank:
        return Rows(hidden, None, hidden)
    markov = markov_rows(params, batch.previous)
    return Rows(hidden, markov, hidden + markov @ params["markov"]["out"].T)


def confidence_logits(params: Params, rows: Rows) -> mx.array:
    """[S, A, N]"""
    parts = [rows.hidden] if rows.markov is None else [rows.hidden, rows.markov]
    p = params["confidence"]
    return mx.concatenate(parts, axis=-1) @ p["proj"][0] + p["bias"]

"""Attention of a draft layer: block rows ask, context rows and block rows answer.

Queries come from the block only; keys and values of the context come from the fused target features through the same
projections. Knows no layer around it.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.drafters.config import DrafterConfig, LayerRule, Rope
from engine.drafters.context import LayerStore
from engine.drafters.tensors import Matrix, Tensors
from engine.rotary import Tables, tabled


class Rotary:
    """Rope at absolute positions."""

    def __init__(self, rope: Rope) -> None:
        self._rope = rope
        periods = rope.periods()
        self._periods = None if periods is None else mx.array(periods, dtype=mx.float32)
        self._scale = rope.yarn.attention_factor if rope.yarn else 1.0
        self._turn = Tables(self._reference, rope.dims, rope.interleaved) if tabled() else self._reference

    def __call__(self, x: mx.array, offset: int) -> mx.array:
        """x [1, heads, n, dim], its rows at positions offset, offset + 1, ..."""
        y = (self._turn if x.dtype == mx.float32 else self._reference)(x, offset)
        return y if self._scale == 1.0 else y * self._scale

    def _reference(self, x: mx.array, offset: int) -> mx.array:
        return mx.fast.rope(
            x,
            self._rope.dims,
            traditional=self._rope.interleaved,
            base=self._rope.theta if self._periods is None else None,
            scale=1.0,
            offset=offset,
            freqs=self._periods,
        )


def block_mask(first: int, start: int, width: int, rule: LayerRule) -> mx.array | None:
    """Which keys [first, start + width) each block row [start, start + width) sees; None: all."""
    reach = start + width - 1 - first
    if not rule.causal and (rule.window is None or reach < rule.window):
        return None
    q = mx.arange(start, start + width)[:, None]
    k = mx.arange(first, start + width)[None]
    seen = k <= q if rule.causal else mx.ones((width, start + width - first), dtype=mx.bool_)
    if rule.window is not None and reach >= rule.window:
        seen = seen & (q - k < rule.window) & (k - q < rule.window)
    return seen


class DraftAttention:
    """One layer's attention. Variants (gate, sinks, shared key and value, norm on values) follow the config."""

    def __init__(
        self,
        config: DrafterConfig,
        rule: LayerRule,
        tensors: Tensors,
        prefix: str,
        norm_offset: float,
        rotary: Rotary,
    ) -> None:
        self._heads, self._kv_heads, self._dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._eps = config.rms_norm_eps
        self._gemma = config.backbone == "gemma4"
        self._scale = 1.0 if self._gemma else config.head_dim**-0.5
        self._gated = config.gated_query
        self._value_scale = config.value_scale
        self._rule = rule
        self._rotary = rotary
        self._q = tensors.matrix(f"{prefix}.q_proj")
        self.k = tensors.matrix(f"{prefix}.k_proj")
        self.v = None if config.k_eq_v else tensors.matrix(f"{prefix}.v_proj")
        self._o = tensors.matrix(f"{prefix}.o_proj")
        q_norm = tensors.take(f"{prefix}.q_norm.weight") + norm_offset
        self.k_norm = tensors.take(f"{prefix}.k_norm.weight") + norm_offset
        # Queries and keys are normed and turned together, each head with its own weight: fewer, larger operations.
        self._qk_norm = mx.stack([q_norm] * self._heads + [self.k_norm] * self._kv_heads)
        self._sinks = tensors.maybe(f"{prefix}.attention_sink_bias")

    def matrices(self) -> list[Matrix]:
        return [m for m in (self._q, self.k, self.v, self._o) if m is not None]

    def __call__(self, x: mx.array, store: LayerStore, start: int) -> mx.array:
        """Block rows [B, H] at positions start.. -> [B, H]."""
        width = x.shape[0]
        q, gate = self._q(x), None
        if self._gated:
            q, gate = mx.split(q.reshape(width, self._heads, 2 * self._dim), 2, axis=-1)
        raw = self.k(x).reshape(1, width, self._kv_heads, self._dim)
        v = raw if self.v is None else self.v(x).reshape(raw.shape)
        if self._gemma:
            v = mx.fast.rms_norm(v, None, self._eps)
        both = mx.concatenate([q.reshape(1, width, self._heads, self._dim), raw], axis=2)
        both = mx.fast.rms_norm(both, None, self._eps) * self._qk_norm
        both = self._rotary(both.transpose(0, 2, 1, 3), start)
        keys, values, first = store.with_block(both[:, self._heads :], v.transpose(0, 2, 1, 3))
        mask = block_mask(first, start, width, self._rule)
        out = mx.fast.scaled_dot_product_attention(
            both[:, : self._heads], keys, values, scale=self._scale, mask=mask, sinks=self._sinks
        )
        out = out.transpose(0, 2, 1, 3).reshape(width, self._heads * self._dim)
        if self._value_scale != 1.0:
            out = out * self._value_scale  # the same as scaling every value, context rows included
        if gate is not None:
            out = out * mx.sigmoid(gate.reshape(width, -1))
        return self._o(out)


class ContextProjection:
    """Keys and values of context rows for all layers at once: they come from the same features."""

    def __init__(self, config: DrafterConfig, layers: Sequence[DraftAttention], rotary: Rotary) -> None:
        self._kv_heads, self._dim, self._eps = config.num_kv_heads, config.head_dim, config.rms_norm_eps
        self._gemma = config.backbone == "gemma4"
        self._rotary = rotary
        self._heads = len(layers) * config.num_kv_heads
        values = [a.v for a in layers if a.v is not None]
        self._matrix = Matrix.stack([*(a.k for a in layers), *values])
        self._shared = not values
        self._norm = mx.stack([a.k_norm for a in layers for _ in range(config.num_kv_heads)])

    def __call__(self, context: mx.array, start: int) -> list[tuple[mx.array, mx.array]]:
        """Context rows [n, H] at positions start.. -> keys and values [1, heads, n, dim] of each layer."""
        rows = context.shape[0]
        made = self._matrix(context).reshape(1, rows, -1, self._dim)
        raw = made[:, :, : self._heads]
        v = raw if self._shared else made[:, :, self._heads :]
        if self._gemma:
            v = mx.fast.rms_norm(v, None, self._eps)
        k = mx.fast.rms_norm(raw, None, self._eps) * self._norm
        k, v = self._rotary(k.transpose(0, 2, 1, 3), start), v.transpose(0, 2, 1, 3)
        step = self._kv_heads
        return [(k[:, at : at + step], v[:, at : at + step]) for at in range(0, self._heads, step)]

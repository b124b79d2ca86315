"""Attention of a draft layer: block rows ask, context rows and block rows answer.

Queries come from the block only; keys and values of the context come from the fused target features through the same
projections. Knows no layer around it.
"""

from __future__ import annotations

import mlx.core as mx

from engine.drafters.config import DrafterConfig, LayerRule, Rope
from engine.drafters.context import LayerStore
from engine.drafters.tensors import Matrix, Tensors


class Rotary:
    """Rope at absolute positions."""

    def __init__(self, rope: Rope) -> None:
        self._rope = rope
        periods = rope.periods()
        self._periods = None if periods is None else mx.array(periods, dtype=mx.float32)
        self._scale = rope.yarn.attention_factor if rope.yarn else 1.0

    def __call__(self, x: mx.array, offset: int) -> mx.array:
        """x [1, heads, n, dim], its rows at positions offset, offset + 1, ..."""
        y = mx.fast.rope(
            x,
            self._rope.dims,
            traditional=self._rope.interleaved,
            base=self._rope.theta if self._periods is None else None,
            scale=1.0,
            offset=offset,
            freqs=self._periods,
        )
        return y if self._scale == 1.0 else y * self._scale


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
        self, config: DrafterConfig, rule: LayerRule, tensors: Tensors, prefix: str, norm_offset: float
    ) -> None:
        self._heads, self._kv_heads, self._dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._eps = config.rms_norm_eps
        self._gemma = config.backbone == "gemma4"
        self._scale = 1.0 if self._gemma else config.head_dim**-0.5
        self._gated = config.gated_query
        self._rule = rule
        self._rotary = Rotary(config.rope)
        self._q = tensors.matrix(f"{prefix}.q_proj")
        self._k = tensors.matrix(f"{prefix}.k_proj")
        self._v = None if config.k_eq_v else tensors.matrix(f"{prefix}.v_proj")
        self._o = tensors.matrix(f"{prefix}.o_proj")
        self._q_norm = tensors.take(f"{prefix}.q_norm.weight") + norm_offset
        self._k_norm = tensors.take(f"{prefix}.k_norm.weight") + norm_offset
        self._sinks = tensors.maybe(f"{prefix}.attention_sink_bias")

    def matrices(self) -> list[Matrix]:
        return [m for m in (self._q, self._k, self._v, self._o) if m is not None]

    def append(self, context: mx.array, store: LayerStore, start: int) -> None:
        """Context rows [n, H] at positions start..."""
        k, v = self._keys_values(context, start)
        store.append(k, v, start)

    def __call__(self, x: mx.array, store: LayerStore, start: int) -> mx.array:
        """Block rows [B, H] at positions start.. -> [B, H]."""
        width = x.shape[0]
        q, gate = self._q(x), None
        if self._gated:
            q, gate = mx.split(q.reshape(width, self._heads, 2 * self._dim), 2, axis=-1)
        q = mx.fast.rms_norm(q.reshape(1, width, self._heads, self._dim), self._q_norm, self._eps)
        q = self._rotary(q.transpose(0, 2, 1, 3), start)
        keys, values, first = store.with_block(*self._keys_values(x, start))
        mask = block_mask(first, start, width, self._rule)
        out = mx.fast.scaled_dot_product_attention(q, keys, values, scale=self._scale, mask=mask, sinks=self._sinks)
        out = out.transpose(0, 2, 1, 3).reshape(width, self._heads * self._dim)
        if gate is not None:
            out = out * mx.sigmoid(gate.reshape(width, -1))
        return self._o(out)

    def _keys_values(self, x: mx.array, start: int) -> tuple[mx.array, mx.array]:
        shape = (1, x.shape[0], self._kv_heads, self._dim)
        raw = self._k(x).reshape(shape)
        v = raw if self._v is None else self._v(x).reshape(shape)
        if self._gemma:
            v = mx.fast.rms_norm(v, None, self._eps)
        k = mx.fast.rms_norm(raw, self._k_norm, self._eps)
        return self._rotary(k.transpose(0, 2, 1, 3), start), v.transpose(0, 2, 1, 3)

"""Attention of a draft layer: block rows ask, context rows and block rows answer.

Queries come from the block only; keys and values of the context come from the fused target features through the same
projections. Knows no layer around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from engine.backend.rope import Tables, tabled
from engine.drafters.checkpoint.config import DrafterConfig, LayerRule, Rope
from engine.drafters.nn.kv_cache import LayerRows, LayerStore
from engine.drafters.nn.tensors import Matrix, Tensors


class Rotary:
    """Rope at absolute positions."""

    def __init__(self, rope: Rope) -> None:
        self._rope = rope
        periods = rope.periods()
        self._periods = None if periods is None else mx.array(periods, dtype=mx.float32)
        self._scale = rope.yarn.attention_factor if rope.yarn else 1.0
        self._turn = Tables(self._reference, rope.dims, rope.interleaved) if tabled() else self._reference

    def __call__(self, x: mx.array, offsets: tuple[int, ...]) -> mx.array:
        """x [B, heads, n, dim], the rows of b at positions offsets[b], offsets[b] + 1, ..."""
        offset = offsets[0] if len(set(offsets)) == 1 else offsets
        y = (self._turn if x.dtype == mx.float32 else self._reference)(x, offset)
        return y if self._scale == 1.0 else y * self._scale

    def _reference(self, x: mx.array, offset: int | tuple[int, ...]) -> mx.array:
        return mx.fast.rope(
            x,
            self._rope.dims,
            traditional=self._rope.interleaved,
            base=self._rope.theta if self._periods is None else None,
            scale=1.0,
            offset=offset if isinstance(offset, int) else mx.array(offset, dtype=mx.int32),
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


@dataclass(slots=True)
class Blocks:
    """The blocks of one forward, one a sequence, all equally wide; their rows are stacked [B * width, H]."""

    starts: tuple[int, ...]
    """Position of each block's first row."""
    width: int
    masks: dict[tuple[int, int, LayerRule], mx.array | None] = field(
        default_factory=dict[tuple[int, int, LayerRule], mx.array | None]
    )
    """Made so far: layers of one rule share them."""

    def mask(self, first: int, start: int, rule: LayerRule) -> mx.array | None:
        key = (first, start, rule)
        if key not in self.masks:
            self.masks[key] = block_mask(first, start, self.width, rule)
        return self.masks[key]


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

    def __call__(self, x: mx.array, stores: Sequence[LayerStore], blocks: Blocks) -> mx.array:
        """Block rows [B * width, H] -> the same shape. Each block has a context of its own, which is not copied."""
        size, width = len(stores), blocks.width
        q, gate = self._q(x), None
        if self._gated:
            q, gate = mx.split(q.reshape(size * width, self._heads, 2 * self._dim), 2, axis=-1)
        raw = self.k(x).reshape(size, width, self._kv_heads, self._dim)
        v = raw if self.v is None else self.v(x).reshape(raw.shape)
        if self._gemma:
            v = mx.fast.rms_norm(v, None, self._eps)
        both = mx.concatenate([q.reshape(size, width, self._heads, self._dim), raw], axis=2)
        both = mx.fast.rms_norm(both, None, self._eps) * self._qk_norm
        both, v = self._rotary(both.transpose(0, 2, 1, 3), blocks.starts), v.transpose(0, 2, 1, 3)
        each = [(both, v)] if size == 1 else [(both[i : i + 1], v[i : i + 1]) for i in range(size)]
        outs = [self._attend(*qkv, *at, blocks) for qkv, at in zip(each, zip(stores, blocks.starts), strict=True)]
        out = outs[0] if size == 1 else mx.concatenate(outs)
        out = out.transpose(0, 2, 1, 3).reshape(size * width, self._heads * self._dim)
        if self._value_scale != 1.0:
            out = out * self._value_scale  # the same as scaling every value, context rows included
        if gate is not None:
            out = out * mx.sigmoid(gate.reshape(size * width, -1))
        return self._o(out)

    def _attend(self, both: mx.array, v: mx.array, store: LayerStore, start: int, blocks: Blocks) -> mx.array:
        """One block, queries and keys [1, heads + kv heads, width, dim] turned already -> [1, heads, width, dim]."""
        keys, values, first = store.with_block(both[:, self._heads :], v)
        mask = blocks.mask(first, start, self._rule)
        return mx.fast.scaled_dot_product_attention(
            both[:, : self._heads], keys, values, scale=self._scale, mask=mask, sinks=self._sinks
        )


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

    def __call__(self, context: mx.array, counts: Sequence[int], starts: Sequence[int]) -> list[LayerRows]:
        """Context rows [sum of counts, H], counts[i] of sequence i at positions starts[i].. -> those of each."""
        rows = context.shape[0]
        made = self._matrix(context).reshape(1, rows, -1, self._dim)
        raw = made[:, :, : self._heads]
        v = raw if self._shared else made[:, :, self._heads :]
        if self._gemma:
            v = mx.fast.rms_norm(v, None, self._eps)
        k = mx.fast.rms_norm(raw, None, self._eps) * self._norm
        k, v, out, end = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3), list[LayerRows](), 0
        for count, start in zip(counts, starts, strict=True):
            begin, end = end, end + count
            mine = (k, v) if count == rows else (k[:, :, begin:end], v[:, :, begin:end])
            out.append(self._layers(self._rotary(mine[0], (start,)), mine[1]))
        return out

    def _layers(self, k: mx.array, v: mx.array) -> LayerRows:
        step = self._kv_heads
        return [(k[:, at : at + step], v[:, at : at + step]) for at in range(0, self._heads, step)]

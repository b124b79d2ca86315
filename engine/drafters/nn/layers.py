"""Draft layers: Qwen3's, optionally with DFlash 2's dynamic convolutions, and Gemma-4's. Knows no head and no loop."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig, Selector
from engine.drafters.nn.attention import Blocks, DraftAttention, Rotary
from engine.drafters.nn.kv_cache import LayerStore
from engine.drafters.nn.tensors import Matrix, Tensors


def _silu(x: mx.array) -> mx.array:
    return x * mx.sigmoid(x)


def _gelu_tanh(x: mx.array) -> mx.array:
    return 0.5 * x * (1.0 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


class GatedMlp:
    """down(act(gate) * up)."""

    def __init__(self, tensors: Tensors, prefix: str, gelu: bool) -> None:
        self._gate = tensors.matrix(f"{prefix}.gate_proj")
        self._up = tensors.matrix(f"{prefix}.up_proj")
        self._down = tensors.matrix(f"{prefix}.down_proj")
        self._act = _gelu_tanh if gelu else _silu

    def __call__(self, x: mx.array) -> mx.array:
        return self._down(self._act(self._gate(x)) * self._up(x))

    def matrices(self) -> list[Matrix]:
        return [self._gate, self._up, self._down]


class DynamicConv:
    """Two short causal convolutions over the block, with taps that depend on the sublayer's input."""

    def __init__(self, selector: Selector, tensors: Tensors, prefix: str) -> None:
        self._taps, self._group = selector.conv_kernel, selector.conv_group
        self._base = tensors.take(f"{prefix}.base_kernel")
        self._projection = tensors.matrix(f"{prefix}.kernel_projection")

    def kernels(self, x: mx.array, blocks: Blocks) -> mx.array:
        """Normalised sublayer input [B, H] -> coefficients [2, taps, B, H] of the input and the output side."""
        rows, width = x.shape
        delta = self._projection(x).reshape(rows, 2, self._taps, width // self._group)
        kernels = self._base[:, :, None, :] + mx.repeat(delta.transpose(1, 2, 0, 3), self._group, axis=-1)
        if rows > blocks.width:
            # A block's first rows look back at nothing, not at the block stacked before it.
            kernels = kernels * (mx.arange(rows) % blocks.width >= mx.arange(self._taps)[:, None])[..., None]
        return kernels

    @staticmethod
    def apply(kernel: mx.array, z: mx.array) -> mx.array:
        """kernel [taps, B, H], z [B, H]; rows before the first are zero."""
        rows = z.shape[0]
        out = kernel[0] * z
        for t in range(1, min(kernel.shape[0], rows)):
            out = out + kernel[t] * mx.pad(z[: rows - t], [(t, 0), (0, 0)])
        return out


class Qwen3Layer:
    """Pre-norm attention and gated MLP."""

    def __init__(self, config: DrafterConfig, index: int, tensors: Tensors, rotary: Rotary) -> None:
        prefix, offset = f"layers.{index}", 1.0 if config.offset_norms else 0.0
        self._eps = config.rms_norm_eps
        self.attention = DraftAttention(config, config.layers[index], tensors, f"{prefix}.self_attn", offset, rotary)
        self._mlp = GatedMlp(tensors, f"{prefix}.mlp", gelu=False)
        self._norm1 = tensors.take(f"{prefix}.input_layernorm.weight") + offset
        self._norm2 = tensors.take(f"{prefix}.post_attention_layernorm.weight") + offset
        self._convs: tuple[DynamicConv, DynamicConv] | None = None
        if config.selector is not None:
            self._convs = (
                DynamicConv(config.selector, tensors, f"{prefix}.attention_conv"),
                DynamicConv(config.selector, tensors, f"{prefix}.mlp_conv"),
            )

    def __call__(self, h: mx.array, stores: Sequence[LayerStore], blocks: Blocks) -> mx.array:
        x = mx.fast.rms_norm(h, self._norm1, self._eps)
        if self._convs is None:
            h = h + self.attention(x, stores, blocks)
            return h + self._mlp(mx.fast.rms_norm(h, self._norm2, self._eps))
        kernel = self._convs[0].kernels(x, blocks)
        y = self.attention(DynamicConv.apply(kernel[0], x), stores, blocks)
        h = h + DynamicConv.apply(kernel[1], y)
        x = mx.fast.rms_norm(h, self._norm2, self._eps)
        kernel = self._convs[1].kernels(x, blocks)
        return h + DynamicConv.apply(kernel[1], self._mlp(DynamicConv.apply(kernel[0], x)))

    def matrices(self) -> list[Matrix]:
        return [*self.attention.matrices(), *self._mlp.matrices()]


class Gemma4Layer:
    """Norms before and after both sublayers, and a learned scale on the result."""

    def __init__(self, config: DrafterConfig, index: int, tensors: Tensors, rotary: Rotary) -> None:
        prefix = f"layers.{index}"
        self._eps = config.rms_norm_eps
        self.attention = DraftAttention(config, config.layers[index], tensors, f"{prefix}.self_attn", 0.0, rotary)
        self._mlp = GatedMlp(tensors, f"{prefix}.mlp", gelu=True)
        self._norms = [
            tensors.take(f"{prefix}.{name}.weight")
            for name in (
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            )
        ]
        self._scalar = tensors.take(f"{prefix}.layer_scalar")

    def __call__(self, h: mx.array, stores: Sequence[LayerStore], blocks: Blocks) -> mx.array:
        h = h + self._norm(1, self.attention(self._norm(0, h), stores, blocks))
        h = h + self._norm(3, self._mlp(self._norm(2, h)))
        return h * self._scalar

    def _norm(self, which: int, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self._norms[which], self._eps)

    def matrices(self) -> list[Matrix]:
        return [*self.attention.matrices(), *self._mlp.matrices()]


DraftLayer = Qwen3Layer | Gemma4Layer


def make_layer(config: DrafterConfig, index: int, tensors: Tensors, rotary: Rotary) -> DraftLayer:
    kind = Gemma4Layer if config.backbone == "gemma4" else Qwen3Layer
    return kind(config, index, tensors, rotary)

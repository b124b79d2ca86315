"""A drafter's tensors: dense, or quantised for speed; taken by name, none missing and none left over.

Knows shapes and number formats, and no forward.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import mlx.core as mx
import numpy as np

from engine.drafters.checkpoint.config import DrafterConfig
from engine.errors import DrafterRefused

Shapes = dict[str, tuple[int, ...]]

MASK_ROW = "mask_embedding"
"""The row of a block's masks, where a file carries it beside the embedding table."""
_SHOWN = 8


class Matrix:
    """A linear map y = W x + b, dense or MLX-quantised."""

    def __init__(self, weight: mx.array, bias: mx.array | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self._quantized: tuple[mx.array, mx.array, int, int] | None = None
        self._transposed = weight.T

    def __call__(self, x: mx.array) -> mx.array:
        if self._quantized is None:
            y = x @ self._transposed
        else:
            scales, biases, group, bits = self._quantized
            y = mx.quantized_matmul(x, self.weight, scales, biases, transpose=True, group_size=group, bits=bits)
        return y if self.bias is None else y + self.bias

    def quantize(self, bits: int, group: int = 64) -> None:
        """Store the weight in `bits` bits; a width that the group does not divide stays dense."""
        if self._quantized is None and self.weight.shape[-1] % group == 0 and self.weight.shape[0] % 32 == 0:
            self.weight, scales, biases = mx.quantize(self.weight, group_size=group, bits=bits)
            self._quantized = (scales, biases, group, bits)
            self._transposed = self.weight.T

    @classmethod
    def stack(cls, parts: Sequence[Matrix]) -> Matrix:
        """One matrix that computes all of `parts`, which become views of its rows: nothing is held twice."""
        whole = cls(mx.concatenate([p.weight for p in parts]))
        if all(p.bias is not None for p in parts):
            whole.bias = mx.concatenate([p.bias for p in parts if p.bias is not None])
        packed = [p._quantized for p in parts if p._quantized is not None]
        if packed:
            scales, biases = mx.concatenate([q[0] for q in packed]), mx.concatenate([q[1] for q in packed])
            whole._quantized = (scales, biases, *packed[0][2:])
        mx.eval(whole.arrays())
        at = 0
        for part in parts:
            rows = slice(at, at := at + part.weight.shape[0])
            part.weight = whole.weight[rows]
            part._transposed = part.weight.T
            if whole._quantized is not None:
                scales, biases, group, bits = whole._quantized
                part._quantized = (scales[rows], biases[rows], group, bits)
        return whole

    def arrays(self) -> list[mx.array]:
        extra = list(self._quantized[:2]) if self._quantized else []
        return [self.weight, *([] if self.bias is None else [self.bias]), *extra]


class Tensors:
    """Named arrays of one checkpoint, after renaming."""

    def __init__(self, arrays: Mapping[str, mx.array], dtype: mx.Dtype | None = None) -> None:
        self._arrays = dict(arrays)
        self._dtype = dtype

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def names(self) -> set[str]:
        return set(self._arrays)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._arrays[name].shape)

    def take(self, name: str) -> mx.array:
        """The array, floats in the drafter's number format."""
        value = self._arrays[name]
        is_float = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(self._dtype) if is_float and self._dtype is not None else value

    def maybe(self, name: str) -> mx.array | None:
        return self.take(name) if name in self._arrays else None

    def fingerprint(self, seed: str) -> str:
        """Changes with `seed`, the names, the shapes and (by samples) the values."""
        digest = hashlib.sha256(seed.encode())
        for name, value in sorted(self._arrays.items()):
            digest.update(f"{name}{value.shape}".encode())
            digest.update(np.array(value.reshape(-1)[:16].astype(mx.float32)).tobytes())
        return digest.hexdigest()[:16]

    def matrix(self, name: str) -> Matrix:
        return Matrix(self.take(f"{name}.weight"), self.maybe(f"{name}.bias"))


def block_tensors(config: DrafterConfig, has: Callable[[str], bool], features: int) -> Shapes:
    """Name and shape of what every block drafter must have. Optional parts (own embedding and head, sinks) are expected
    when their first tensor is there. `features` is the width of one tap."""
    h = config.hidden_size
    shapes: Shapes = {
        "fc.weight": (h, len(config.taps) * features),
        "hidden_norm.weight": (h,),
        "norm.weight": (h,),
    }
    if has("embed_tokens.weight"):
        shapes["embed_tokens.weight"] = (config.vocab_size, h)
    if has("lm_head.weight"):
        shapes["lm_head.weight"] = (config.head_rows, h)
    if has(MASK_ROW):
        shapes[MASK_ROW] = (h,)
    if config.draft_vocab_size is not None:
        shapes["d2t"] = (config.draft_vocab_size,)
    if config.log_snr is not None:
        for fc, columns in {"fc1": 128, "fc2": h}.items():
            shapes |= {f"log_snr_embed.{fc}.weight": (h, columns), f"log_snr_embed.{fc}.bias": (h,)}
    for index in range(len(config.layers)):
        for name, shape in _layer(config).items():
            shapes[f"layers.{index}.{name}"] = shape
        sink = f"layers.{index}.self_attn.attention_sink_bias"
        if has(sink):
            shapes[sink] = (config.num_heads,)
    return shapes


def _layer(config: DrafterConfig) -> Shapes:
    h, hd, inner = config.hidden_size, config.head_dim, config.intermediate_size
    queries, keys = config.num_heads * hd, config.num_kv_heads * hd
    shapes: Shapes = {
        "input_layernorm.weight": (h,),
        "post_attention_layernorm.weight": (h,),
        "self_attn.q_proj.weight": (queries * (2 if config.gated_query else 1), h),
        "self_attn.k_proj.weight": (keys, h),
        "self_attn.v_proj.weight": (keys, h),
        "self_attn.o_proj.weight": (h, queries),
        "self_attn.q_norm.weight": (hd,),
        "self_attn.k_norm.weight": (hd,),
        "mlp.gate_proj.weight": (inner, h),
        "mlp.up_proj.weight": (inner, h),
        "mlp.down_proj.weight": (h, inner),
    }
    if config.k_eq_v:
        del shapes["self_attn.v_proj.weight"]
    if config.attention_bias:
        for name in [n for n in shapes if n.startswith("self_attn.") and n.endswith("_proj.weight")]:
            shapes[name.replace("weight", "bias")] = shapes[name][:1]
    if config.backbone == "gemma4":
        shapes |= {
            "pre_feedforward_layernorm.weight": (h,),
            "post_feedforward_layernorm.weight": (h,),
            "layer_scalar": (1,),
        }
    return shapes


def check(config: DrafterConfig, tensors: Tensors, shapes: Shapes, strict: bool = True) -> None:
    """Refuse a file whose tensors are not those of its config.

    Raises:
        DrafterRefused: with the first missing, unexpected or misshapen names.
    """
    _check_draft_vocabulary(config, tensors)
    missing = sorted(set(shapes) - tensors.names())
    extra = sorted(tensors.names() - set(shapes)) if strict else []
    if missing or extra:
        parts = [f"{word} {_some(names)}" for word, names in (("missing", missing), ("unexpected", extra)) if names]
        raise DrafterRefused(
            f"The drafter's tensors are not those of its config: {'; '.join(parts)}. Fetch a complete copy of it, "
            "or another drafter."
        )
    wrong = [f"{n} is {list(tensors.shape(n))}, not {list(s)}" for n, s in shapes.items() if tensors.shape(n) != s]
    if wrong:
        raise DrafterRefused(
            f"The drafter's tensors do not have the shapes of its config: {_some(wrong)}. "
            "It was made for another target, or the file is mixed up; choose another drafter."
        )


def _check_draft_vocabulary(config: DrafterConfig, tensors: Tensors) -> None:
    reduced = config.draft_vocab_size
    if reduced is not None and "d2t" not in tensors:
        raise DrafterRefused(
            f"The config gives a draft vocabulary of {reduced} words, but the file has no d2t table; without it ids "
            "would mean other words, so fetch a complete copy."
        )
    if reduced is None and "d2t" in tensors:
        raise DrafterRefused(
            "The file has a d2t table, but its config gives no draft_vocab_size smaller than the vocabulary; "
            "ids would mean other words, so fetch a complete copy."
        )
    if reduced is not None and "lm_head.weight" not in tensors:
        raise DrafterRefused(
            "The drafter has a reduced vocabulary but no output matrix of its own; fetch a complete copy of it."
        )


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

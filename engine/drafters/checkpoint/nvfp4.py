"""NVFP4 weights (modelopt W4A16): 4-bit floats, an 8-bit float scale per 16 of them, a float32 scale per tensor."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from engine.errors import DrafterRefused

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_GROUP = 16


def is_packed(name: str, arrays: Mapping[str, mx.array]) -> bool:
    """Whether `name` is an NVFP4 weight of this checkpoint."""
    return name.endswith(".weight") and arrays[name].dtype == mx.uint8 and f"{name}_scale" in arrays


def unpack(name: str, arrays: Mapping[str, mx.array]) -> mx.array:
    """[out, in/2] bytes, low nibble first -> [out, in] bfloat16."""
    packed, scale = arrays[name], arrays[f"{name}_scale"]
    rows, columns = packed.shape[0], packed.shape[1] * 2
    if scale.shape != (rows, columns // _GROUP):
        raise DrafterRefused(f"{name} has scales of another shape than NVFP4's; use the bf16 file of this drafter.")
    table = mx.array([*_VALUES, *(-v for v in _VALUES)], dtype=mx.float32)
    nibbles = mx.stack([packed & 0x0F, packed >> 4], axis=-1).reshape(rows, columns // _GROUP, _GROUP)
    factors = mx.from_fp8(scale, dtype=mx.float32) if scale.dtype == mx.uint8 else scale.astype(mx.float32)
    whole = arrays.get(f"{name}_scale_2")
    if whole is not None:
        factors = factors * whole.astype(mx.float32).reshape(-1)[0]
    return (table[nibbles.astype(mx.int32)] * factors[..., None]).reshape(rows, columns).astype(mx.bfloat16)

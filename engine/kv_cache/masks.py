"""Attention masks for buffers whose rows stand at different lengths. Pure index arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx

from engine import backend

Mask = mx.array | str | None


def uniform_mask(width: int, before: int, window: int | None, return_array: bool) -> Mask:
    """Mask for `width` queries that follow `before` visible keys; all rows alike.

    None when everything is visible, "causal" where the attention kernel can do it alone, else bool [width, keys]: the
    CPU has no such kernel, and would build the same mask again in every layer.
    """
    if width == 1 and (window is None or before < window):
        return None
    narrow = window is not None and before + width > window
    if not narrow and not return_array and not backend.is_cpu():
        return "causal"
    queries = mx.arange(before, before + width)[:, None]
    keys = mx.arange(before + width)[None]
    mask = keys <= queries
    return mask & (queries - keys < window) if window is not None else mask


def ragged_mask(width: int, used: Sequence[int], window: int | None) -> mx.array:
    """bool [B, 1, width, max(used) + width] for left-aligned rows holding used[b] keys before the block."""
    before = mx.array(list(used), dtype=mx.int32)[:, None, None, None]
    queries = before + mx.arange(width)[None, None, :, None]
    keys = mx.arange(max(used) + width)[None, None, None, :]
    mask = keys <= queries
    return mask & (queries - keys < window) if window is not None else mask


def offsets(lengths: Sequence[int]) -> int | mx.array:
    """Rope offset of the next row: one int where all rows agree, else int32 [B]."""
    first = lengths[0]
    return first if all(n == first for n in lengths) else _told(tuple(lengths))


@lru_cache(maxsize=16)
def _told(lengths: tuple[int, ...]) -> mx.array:
    """One array for all layers of a forward."""
    return mx.array(lengths, dtype=mx.int32)

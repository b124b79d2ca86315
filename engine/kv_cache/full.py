"""Keys and values of full attention: append, and undo by forgetting the tail.

Buffers are left-aligned [B, heads, capacity, dim]; row b's valid part is the first lengths[b] columns, so a rollback is
bookkeeping only and what it leaves behind is overwritten by the next append.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import mlx.core as mx

from engine.kv_cache.base import Kind, LayerSnapshot, LayerState
from engine.kv_cache.masks import Mask, offsets, ragged_mask, uniform_mask

STEP = 256
"""Columns are allocated in multiples of this."""


def round_up(n: int, step: int = STEP) -> int:
    return -(-n // step) * step


class AppendKV(LayerState):
    """Full-attention cache of B rows; stands in for mlx-lm's KVCache."""

    kind: ClassVar[Kind] = "append"

    def __init__(self, rows: int = 1) -> None:
        self.lengths = [0] * rows
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    # What the model calls -------------------------------------------------------------------------------------------

    @property
    def offset(self) -> int | mx.array:
        return offsets(self.lengths)

    def make_mask(self, width: int, return_array: bool = False, window_size: int | None = None) -> Mask:
        if isinstance(self.offset, int):
            return uniform_mask(width, self.offset, window_size, return_array)
        return ragged_mask(width, self.lengths, window_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append [B, heads, T, dim] at each row's length; returns all columns up to the longest row's end."""
        width = keys.shape[2]
        end = max(self.lengths) + width
        self._reserve(keys, values, end)
        assert self.keys is not None
        assert self.values is not None
        offset = self.offset
        if isinstance(offset, int):
            self.keys[..., offset:end, :] = keys
            self.values[..., offset:end, :] = values
        else:
            for b, n in enumerate(self.lengths):
                self.keys[b : b + 1, :, n : n + width] = keys[b : b + 1]
                self.values[b : b + 1, :, n : n + width] = values[b : b + 1]
        return self.keys[..., :end, :], self.values[..., :end, :]

    def empty(self) -> bool:
        return self.keys is None

    def _reserve(self, keys: mx.array, values: mx.array, end: int) -> None:
        if self.keys is None or self.values is None:
            rows, heads = keys.shape[:2]
            capacity = round_up(end)
            self.keys = mx.zeros((rows, heads, capacity, keys.shape[3]), dtype=keys.dtype)
            self.values = mx.zeros((rows, heads, capacity, values.shape[3]), dtype=values.dtype)
        elif self.keys.shape[2] < end:
            # Growing by half keeps the copying amortised over a long answer.
            capacity = round_up(max(end, self.keys.shape[2] * 3 // 2))
            self.keys = _widen(self.keys, capacity)
            self.values = _widen(self.values, capacity)

    # What the engine calls ------------------------------------------------------------------------------------------

    def begin(self, width: int, record: bool) -> None:
        """Nothing to remember: rows behind `lengths` are invisible until committed."""

    def commit(self, keep: Sequence[int]) -> None:
        self.lengths = [n + k for n, k in zip(self.lengths, keep, strict=True)]

    def abort(self) -> None:
        """Nothing to undo."""

    def snapshot(self, row: int) -> LayerSnapshot:
        n = self.lengths[row]
        if self.keys is None or self.values is None:
            return LayerSnapshot(self.kind, 0, (None, None), 0, 0)
        keys = self.keys[row : row + 1, :, :n]
        values = self.values[row : row + 1, :, :n]
        return LayerSnapshot(self.kind, n, (keys, values), keys.nbytes + values.nbytes, 0)

    def restore(self, row: int, snap: LayerSnapshot, length: int) -> None:
        if len(self.lengths) != 1:
            raise ValueError("restore into a state of one row, then extend the batch with it")
        keys, values = snap.data
        self.lengths = [length]
        self.keys = None if keys is None else keys[:, :, :length]
        self.values = None if values is None else values[:, :, :length]
        if length == 0:
            self.keys = self.values = None

    def select(self, rows: Sequence[int]) -> None:
        self.lengths = [self.lengths[r] for r in rows]
        if self.keys is not None and self.values is not None:
            index = mx.array(list(rows), dtype=mx.int32)
            end = round_up(max(self.lengths, default=0))
            self.keys = self.keys[index, :, :end]
            self.values = self.values[index, :, :end]

    def extend(self, other: AppendKV) -> None:
        self.lengths += other.lengths
        if self.keys is None or self.values is None or other.keys is None or other.values is None:
            raise ValueError("only sequences that hold tokens can share a batch")
        capacity = max(self.keys.shape[2], other.keys.shape[2])
        self.keys = mx.concatenate([_widen(self.keys, capacity), _widen(other.keys, capacity)])
        self.values = mx.concatenate([_widen(self.values, capacity), _widen(other.values, capacity)])

    def arrays(self) -> list[mx.array]:
        return [] if self.keys is None or self.values is None else [self.keys, self.values]


def _widen(buffer: mx.array, capacity: int) -> mx.array:
    missing = capacity - buffer.shape[2]
    return buffer if missing <= 0 else mx.pad(buffer, [(0, 0), (0, 0), (0, missing), (0, 0)])

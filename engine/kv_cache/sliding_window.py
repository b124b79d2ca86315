"""Keys and values of sliding-window attention, in temporal order with slack, so that a rollback is exact.

The ring buffers in common use overwrite the oldest row when one row is appended, and after an undone block take
rejected rows for live ones (the stock cache fails `tests/engine/kv_cache/test_matrix.py`). Here rows stay in order,
older rows than the window are hidden by slice and mask, and the buffer is compacted only when it is full, before a
round begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import mlx.core as mx

from engine.kv_cache.base import Kind, LayerSnapshot, LayerState
from engine.kv_cache.full import round_up
from engine.kv_cache.masks import Mask, offsets, ragged_mask, uniform_mask

SLACK = 64
"""Columns beyond the window: how many rows are appended between compactions."""


class WindowKV(LayerState):
    """Sliding-window cache of B rows: a key is visible iff query position - key position < window.

    Buffers [B, heads, capacity, dim]; column j of row b holds absolute position starts[b] + j.
    """

    kind: ClassVar[Kind] = "window"

    def __init__(self, window: int, rows: int = 1) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} tokens sees nothing")
        self.window = window
        self.lengths = [0] * rows
        self.starts = [0] * rows
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def used(self) -> list[int]:
        return [n - s for n, s in zip(self.lengths, self.starts, strict=True)]

    # What the model calls -------------------------------------------------------------------------------------------

    @property
    def offset(self) -> int | mx.array:
        return offsets(self.lengths)

    def make_mask(self, width: int, return_array: bool = False, window_size: int | None = None) -> Mask:
        used = self.used
        if self._uniform():
            return uniform_mask(width, min(used[0], self.window - 1), self.window, return_array)
        return ragged_mask(width, used, self.window)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append [B, heads, T, dim]; returns the columns that any of the T queries may see (masked where ragged)."""
        width = keys.shape[2]
        if self.keys is None or self.values is None:
            shape = (keys.shape[0], keys.shape[1], round_up(self.window - 1 + max(width, SLACK), SLACK))
            self.keys = mx.zeros((*shape, keys.shape[3]), dtype=keys.dtype)
            self.values = mx.zeros((*shape, values.shape[3]), dtype=values.dtype)
        used = self.used
        if self._uniform():
            n = used[0]
            self.keys[..., n : n + width, :] = keys
            self.values[..., n : n + width, :] = values
            low = max(0, n - (self.window - 1))
            return self.keys[..., low : n + width, :], self.values[..., low : n + width, :]
        for b, n in enumerate(used):
            self.keys[b : b + 1, :, n : n + width] = keys[b : b + 1]
            self.values[b : b + 1, :, n : n + width] = values[b : b + 1]
        end = max(used) + width
        return self.keys[..., :end, :], self.values[..., :end, :]

    def empty(self) -> bool:
        return self.keys is None

    def _uniform(self) -> bool:
        """All rows at the same length and layout, so that slices serve for all."""
        return all(n == self.lengths[0] for n in self.lengths) and all(s == self.starts[0] for s in self.starts)

    # What the engine calls ------------------------------------------------------------------------------------------

    def begin(self, width: int, record: bool) -> None:
        """Make room now, so that mask and append agree on the layout. What is dropped is older than any later query
        can see, so that an abort needs nothing."""
        if self.keys is None or self.values is None or max(self.used) + width <= self.keys.shape[2]:
            return
        kept = [min(n, self.window - 1) for n in self.used]
        capacity = round_up(self.window - 1 + max(width, SLACK), SLACK)
        self.keys = self._compact(self.keys, kept, capacity)
        self.values = self._compact(self.values, kept, capacity)
        self.starts = [n - k for n, k in zip(self.lengths, kept, strict=True)]

    def _compact(self, buffer: mx.array, kept: Sequence[int], capacity: int) -> mx.array:
        rows = [
            mx.pad(buffer[b : b + 1, :, n - k : n], [(0, 0), (0, 0), (0, capacity - k), (0, 0)])
            for b, (n, k) in enumerate(zip(self.used, kept, strict=True))
        ]
        return rows[0] if len(rows) == 1 else mx.concatenate(rows)

    def commit(self, keep: Sequence[int]) -> None:
        self.lengths = [n + k for n, k in zip(self.lengths, keep, strict=True)]

    def abort(self) -> None:
        """Nothing to undo: rows behind `lengths` are invisible."""

    def snapshot(self, row: int) -> LayerSnapshot:
        if self.keys is None or self.values is None:
            return LayerSnapshot(self.kind, 0, (None, None, 0), 0, 0)
        n, used = self.lengths[row], self.used[row]
        low = max(0, used - (self.window - 1 + SLACK))
        keys, values = self.keys[row : row + 1, :, low:used], self.values[row : row + 1, :, low:used]
        start = self.starts[row] + low
        oldest = 0 if start == 0 else min(n, start + self.window - 1)
        return LayerSnapshot(self.kind, n, (keys, values, start), keys.nbytes + values.nbytes, oldest)

    def restore(self, row: int, snap: LayerSnapshot, length: int) -> None:
        if len(self.lengths) != 1:
            raise ValueError("restore into a state of one row, then extend the batch with it")
        keys, values, start = snap.data
        self.lengths, self.starts = [length], [start]
        if keys is None or length <= start:
            self.starts = [length]
            self.keys = self.values = None
        else:
            self.keys, self.values = keys[:, :, : length - start], values[:, :, : length - start]

    def select(self, rows: Sequence[int]) -> None:
        self.lengths = [self.lengths[r] for r in rows]
        self.starts = [self.starts[r] for r in rows]
        if self.keys is not None and self.values is not None:
            index = mx.array(list(rows), dtype=mx.int32)
            self.keys, self.values = self.keys[index], self.values[index]

    def extend(self, other: WindowKV) -> None:
        if self.keys is None or self.values is None or other.keys is None or other.values is None:
            raise ValueError("only sequences that hold tokens can share a batch")
        capacity = max(self.keys.shape[2], other.keys.shape[2])
        grow = [(0, 0), (0, 0)]
        self.keys = mx.concatenate(
            [mx.pad(k, [*grow, (0, capacity - k.shape[2]), (0, 0)]) for k in (self.keys, other.keys)]
        )
        self.values = mx.concatenate(
            [mx.pad(v, [*grow, (0, capacity - v.shape[2]), (0, 0)]) for v in (self.values, other.values)]
        )
        self.lengths += other.lengths
        self.starts += other.starts

    def arrays(self) -> list[mx.array]:
        return [] if self.keys is None or self.values is None else [self.keys, self.values]

"""Keys and values of full attention in 8, 6 or 4 bits: the same bookkeeping as `AppendKV` on packed buffers.

A row is quantised alone and once, when it is appended, so that a rollback stays exact and speculation gives what plain
decoding gives at the same bits. It saves memory and costs time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from engine.errors import UsageError
from engine.kv_cache.base import LayerSnapshot
from engine.kv_cache.full import AppendKV, _widen, round_up

BITS = (4, 6, 8)
GROUPS = (64, 32)
"""Group sizes in order of preference; a head's size must be a multiple of one of them."""

Packed = tuple[mx.array, mx.array, mx.array]
"""Values, scales and biases, as `mx.quantize` returns them."""


def group_for(*head_dims: int) -> int:
    """The group for heads of these sizes.

    Raises:
        UsageError: when no group fits.
    """
    for group in GROUPS:
        if all(dim % group == 0 for dim in head_dims):
            return group
    raise UsageError(
        f"This model's heads of {min(head_dims)} values cannot be quantised in groups of {GROUPS[-1]}: leave --kv-bits "
        "away."
    )


class QuantKV(AppendKV):
    """Full-attention cache of B rows in `bits` bits; stands in for mlx-lm's QuantizedKVCache, whose attributes `bits`
    and `group_size` choose the attention that reads packed keys."""

    def __init__(self, bits: int, rows: int = 1) -> None:
        super().__init__(rows)
        if bits not in BITS:
            raise UsageError(f"Keys and values of {bits} bits are not supported: use {', '.join(map(str, BITS))}.")
        self.bits = bits
        self.group_size = 0
        """Known from the first append on."""
        self.buffers: list[mx.array] = []
        """Keys then values, three arrays each, [B, heads, capacity, *]."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Packed, Packed]:  # pyright: ignore[reportIncompatibleMethodOverride]  # the attention that goes with it reads packed arrays
        """Quantise and append [B, heads, T, dim]; returns all columns up to the longest row's end."""
        self.group_size = self.group_size or group_for(keys.shape[3], values.shape[3])
        new = [*self._pack(keys), *self._pack(values)]
        width = keys.shape[2]
        end = max(self.lengths) + width
        if not self.buffers:
            self.buffers = [mx.zeros((*x.shape[:2], round_up(end), x.shape[3]), dtype=x.dtype) for x in new]
        elif self.buffers[0].shape[2] < end:
            capacity = round_up(max(end, self.buffers[0].shape[2] * 3 // 2))
            self._each(lambda x: _widen(x, capacity))
        for buffer, rows in zip(self.buffers, new, strict=True):
            if all(n == self.lengths[0] for n in self.lengths):
                buffer[..., self.lengths[0] : end, :] = rows
            else:
                for b, n in enumerate(self.lengths):
                    buffer[b : b + 1, :, n : n + width] = rows[b : b + 1]
        k, ks, kb, v, vs, vb = (x[..., :end, :] for x in self.buffers)
        return (k, ks, kb), (v, vs, vb)

    def _pack(self, x: mx.array) -> Packed:
        packed, scales, biases = mx.quantize(x, group_size=self.group_size, bits=self.bits)
        return packed, scales, biases

    def _each(self, change: Callable[[mx.array], mx.array]) -> None:
        self.buffers = [change(x) for x in self.buffers]

    @property
    def dims(self) -> tuple[int, int]:
        """Head sizes of keys and values, once something was appended."""
        return self.buffers[1].shape[3] * self.group_size, self.buffers[4].shape[3] * self.group_size

    def empty(self) -> bool:
        return not self.buffers

    def snapshot(self, row: int) -> LayerSnapshot:
        n = self.lengths[row]
        data = tuple(x[row : row + 1, :, :n] for x in self.buffers)
        return LayerSnapshot(self.kind, n, data, sum(x.nbytes for x in data), 0)

    def restore(self, row: int, snap: LayerSnapshot, length: int) -> None:
        if len(self.lengths) != 1:
            raise ValueError("restore into a state of one row, then extend the batch with it")
        self.lengths = [length]
        self.buffers = [x[:, :, :length] for x in snap.data] if length else []

    def select(self, rows: Sequence[int]) -> None:
        self.lengths = [self.lengths[r] for r in rows]
        index = mx.array(list(rows), dtype=mx.int32)
        end = round_up(max(self.lengths, default=0))
        self._each(lambda x: x[index, :, :end])

    def extend(self, other: Any) -> None:
        if not self.buffers or not other.buffers:
            raise ValueError("only sequences that hold tokens can share a batch")
        capacity = max(self.buffers[0].shape[2], other.buffers[0].shape[2])
        pairs = zip(self.buffers, other.buffers, strict=True)
        self.buffers = [mx.concatenate([_widen(x, capacity), _widen(y, capacity)]) for x, y in pairs]
        self.lengths += other.lengths
        self.group_size = other.group_size

    def arrays(self) -> list[mx.array]:
        return list(self.buffers)

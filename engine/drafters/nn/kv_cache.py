"""What a block drafter remembers of one sequence: keys and values of committed positions, one store a layer.

Buffers are allocated ahead; the block of a round is written into the spare tail, so that a round copies nothing of the
context. Rows carry absolute positions. Features wait until a block asks for them, so that a drafter that is not asked
costs next to nothing. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

_SLACK = 256
WAITING = 32
"""Rows of features that may wait: as many cost little more to project than one, and they are small."""

LayerRows = list[tuple[mx.array, mx.array]]
"""Keys and values [1, heads, n, dim] of each layer."""
Projection = Callable[[Sequence[mx.array], Sequence[int]], list[LayerRows]]
"""(features [n, m*H] of each sequence, position of the first of each) -> rows of each sequence."""


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Rows [base, length) of one layer; arrays of their own, never views of a buffer."""

    base: int
    length: int
    k: mx.array | None
    v: mx.array | None


class LayerStore:
    """Keys (after norm and rope) and values of positions [base, length) for one draft layer."""

    def __init__(self, keep: int | None, scratch: int) -> None:
        self.keep = keep
        """Rows that a block may see; None: all. Older rows may be dropped."""
        self.scratch = scratch
        """Rows that a block needs behind the context."""
        self.base = 0
        self.length = 0
        self.k: mx.array | None = None
        self.v: mx.array | None = None

    @property
    def rows(self) -> int:
        return self.length - self.base

    @property
    def visible(self) -> int:
        return self.rows if self.keep is None else min(self.rows, self.keep)

    def append(self, k: mx.array, v: mx.array, start: int) -> None:
        """Rows [1, heads, n, dim] at positions start... A gap drops what lies before it."""
        if start != self.length:
            self.base = self.length = start
        n = k.shape[2]
        k_buf, v_buf = self._room(k, v, n)
        a, b = self.rows, self.rows + n
        k_buf[:, :, a:b, :] = k
        v_buf[:, :, a:b, :] = v
        self.length = start + n

    def with_block(self, k: mx.array, v: mx.array) -> tuple[mx.array, mx.array, int]:
        """Context and block as one: keys, values, and the position of the first row. The context stays as it was."""
        k_buf, v_buf = self._room(k, v, 0)
        a, b = self.rows, self.rows + k.shape[2]
        k_buf[:, :, a:b, :] = k
        v_buf[:, :, a:b, :] = v
        first = a - self.visible
        return k_buf[:, :, first:b, :], v_buf[:, :, first:b, :], self.length - self.visible

    def snapshot(self) -> StoreSnapshot:
        a, b = self.rows - self.visible, self.rows
        if self.k is None or self.v is None or a == b:
            return StoreSnapshot(self.length, self.length, None, None)
        copies = (mx.contiguous(x[:, :, a:b, :]) for x in (self.k, self.v))
        return StoreSnapshot(self.length - self.visible, self.length, *copies)

    def restore(self, snap: StoreSnapshot, length: int) -> None:
        self.base = self.length = min(snap.base, length)
        self.k = self.v = None
        if snap.k is not None and snap.v is not None and length > snap.base:
            n = length - snap.base
            self.append(snap.k[:, :, :n, :], snap.v[:, :, :n, :], snap.base)
        else:
            self.base = self.length = length

    def capacity(self, length: int) -> int:
        """Rows of the buffer once the store covers so many positions."""
        return self._ahead(length if self.keep is None else min(length, self.keep))

    def _ahead(self, rows: int) -> int:
        return rows + self.scratch + max(_SLACK, rows // 2)

    def _room(self, k: mx.array, v: mx.array, n: int) -> tuple[mx.array, mx.array]:
        """Buffers with room for n more rows and a block; grows geometrically, and drops what no block can see."""
        rows = self.rows
        if self.k is not None and self.v is not None and rows + n + self.scratch <= self.k.shape[2]:
            return self.k, self.v
        kept = rows if self.keep is None else min(rows, max(0, self.keep - n))
        capacity = self._ahead(kept + n)
        heads = (k.shape[0], k.shape[1])
        k_new = mx.zeros((*heads, capacity, k.shape[3]), dtype=k.dtype)
        v_new = mx.zeros((*heads, capacity, v.shape[3]), dtype=v.dtype)
        if kept and self.k is not None and self.v is not None:
            k_new[:, :, :kept, :] = self.k[:, :, rows - kept : rows, :]
            v_new[:, :, :kept, :] = self.v[:, :, rows - kept : rows, :]
        self.base += rows - kept
        self.k, self.v = k_new, v_new
        return k_new, v_new


@dataclass(frozen=True, slots=True)
class BlockSnapshot:
    """Immutable copy of a whole context."""

    length: int
    layers: tuple[StoreSnapshot, ...]
    owner: str = ""
    """Whose features these are: rows of another drafter file mean nothing here."""

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays())

    @property
    def trimmable_from(self) -> int:
        """Down to this length a cut loses no row that a block could see."""
        return 0 if all(s.base == 0 for s in self.layers) else self.length

    def arrays(self) -> list[mx.array]:
        return [a for s in self.layers for a in (s.k, s.v) if a is not None]


class BlockContext:
    """One sequence's context: positions [0, length), or the last window of them."""

    def __init__(self, keeps: Sequence[int | None], scratch: int, project: Projection, owner: str = "") -> None:
        self.owner = owner
        self.length = 0
        self._layers = [LayerStore(keep, scratch) for keep in keeps]
        self._project = project
        self._waiting: list[mx.array] = []
        """Features [n, m*H] of the last positions, not projected yet."""

    @property
    def keep(self) -> int | None:
        """Most rows that any layer can use; None: all."""
        return None if any(s.keep is None for s in self._layers) else max(s.keep or 0 for s in self._layers)

    @property
    def layers(self) -> list[LayerStore]:
        """The stores, with every row in them."""
        self.settle()
        return self._layers

    def take(self, features: mx.array) -> None:
        """Features [n, m*H] of the next positions. Many are projected at once, few wait for company."""
        self._waiting.append(features)
        self.length += features.shape[0]
        if sum(rows.shape[0] for rows in self._waiting) >= WAITING:
            self.settle()
            # Scheduled, not awaited: the next synchronisation covers it.
            mx.async_eval(self._stored())

    def settle(self) -> None:
        """Project what waits."""
        self.settle_all([self])

    @staticmethod
    def settle_all(contexts: Sequence[BlockContext]) -> None:
        """Project what waits in contexts of one drafter, together."""
        waiting = [context for context in contexts if context._waiting]
        if not waiting:
            return
        features = [context._collect() for context in waiting]
        starts = [context.length - rows.shape[0] for context, rows in zip(waiting, features, strict=True)]
        made = waiting[0]._project(features, starts)
        for context, start, layers in zip(waiting, starts, made, strict=True):
            context._store(layers, start)

    def _collect(self) -> mx.array:
        """What waits, which then does not any more; rows that no layer will ever see are not even fused."""
        rows = self._waiting[0] if len(self._waiting) == 1 else mx.concatenate(self._waiting)
        self._waiting = []
        return rows if self.keep is None else rows[max(0, rows.shape[0] - self.keep) :]

    def _store(self, layers: LayerRows, start: int) -> None:
        for (k, v), store in zip(layers, self._layers, strict=True):
            mine = 0 if store.keep is None else max(0, k.shape[2] - store.keep)
            store.append(k[:, :, mine:], v[:, :, mine:], start + mine)

    def skip(self, length: int) -> None:
        """Go on at `length` without the rows before it, which are out of every window or not to be had."""
        self._waiting = []
        for store in self._layers:
            store.base = store.length = length
        self.length = length

    def snapshot(self) -> BlockSnapshot:
        return BlockSnapshot(self.length, tuple(s.snapshot() for s in self.layers), self.owner)

    def restore(self, snap: BlockSnapshot, length: int) -> None:
        """See the contract. A snapshot of another drafter leaves an empty context, which whoever asked fills again."""
        if snap.owner != self.owner:
            self.skip(0)
            return
        if length > snap.length:
            raise ValueError(f"the snapshot covers {snap.length} positions, not {length}")
        self._waiting = []
        for store, part in zip(self._layers, snap.layers, strict=True):
            store.restore(part, min(length, part.length))
        self.length = length

    def arrays(self) -> list[mx.array]:
        self.settle()
        return self._stored()

    def _stored(self) -> list[mx.array]:
        return [a for s in self._layers for a in (s.k, s.v) if a is not None]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers; what waits is not counted."""
        return sum(a.nbytes for a in self._stored())

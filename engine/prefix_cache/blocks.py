"""What a node of the prefix cache holds: keys and values of a run of tokens, and states that only exist at one point.

A `Layout` says which layers of a target append (their memory can be cut anywhere and is stored once per token, whoever
shares it) and which must be kept whole at chosen lengths. All arrays here are copies of their own: nothing pins a live
buffer, and nothing stored is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import mlx.core as mx

from engine.drafters.base import ContextSnapshot
from engine.kv_cache.base import LayerSnapshot, Snapshot

SPAN = 1024
"""Most tokens in one block; bounds what a split has to copy."""
TOKEN_AXIS = 2
"""Arrays of append layers are [1, heads, tokens, dim], as mlx-lm has them."""


class Source(Protocol):
    """A place to read a block or a checkpoint from again."""

    @property
    def alive(self) -> bool: ...

    @property
    def end(self) -> int: ...

    def block(self, index: int) -> list[mx.array]: ...

    def checkpoint(self) -> tuple[tuple[int, LayerSnapshot], ...]: ...

    def contexts(self) -> dict[str, ContextSnapshot]:
        """Of drafters, at `end`."""
        ...

    def discard(self) -> None:
        """Never read it again: what it says is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Which layers append, and which of their arrays are stacked into one to keep the number of buffers low."""

    kinds: tuple[str, ...]
    groups: tuple[tuple[tuple[int, int], ...], ...]
    """Per stack: (layer, slot) in order."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Layout:
        stacks: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        for i, layer in enumerate(snapshot.layers):
            if layer.kind != "append":
                continue
            for slot, x in enumerate(layer.data):
                if x is not None:
                    shape = tuple(x.shape)
                    key = (shape[:TOKEN_AXIS], shape[TOKEN_AXIS + 1 :], str(x.dtype))
                    stacks.setdefault(key, []).append((i, slot))
        return cls(tuple(x.kind for x in snapshot.layers), tuple(tuple(v) for v in stacks.values()))

    @property
    def trimmable(self) -> bool:
        return all(k == "append" for k in self.kinds)

    def block_bytes(self, snapshot: Snapshot, tokens: int) -> int:
        """What `tokens` tokens of append layers weigh."""
        held = sum(x.nbytes for x in snapshot.layers if x.kind == "append")
        return held * tokens // max(1, snapshot.length)

    def cut(self, snapshot: Snapshot, start: int, stop: int) -> list[Block]:
        """Blocks for positions [start, stop)."""
        if not self.groups:
            return []
        return [
            Block(
                min(SPAN, stop - at),
                [
                    mx.stack([snapshot.layers[i].data[slot][:, :, at : min(at + SPAN, stop)] for i, slot in group])
                    for group in self.groups
                ],
            )
            for at in range(start, stop, SPAN)
        ]

    def assemble(self, length: int, blocks: Sequence[Block], layers: Sequence[tuple[int, LayerSnapshot]]) -> Snapshot:
        """A snapshot of `length` tokens from the blocks of a path (which reach at least that far) and a checkpoint."""
        data: dict[int, dict[int, mx.array]] = {}
        for g, group in enumerate(self.groups):
            parts = _head([b.arrays[g] for b in blocks], length)
            whole = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=TOKEN_AXIS + 1)
            for row, (i, slot) in enumerate(group):
                data.setdefault(i, {})[slot] = whole[row]
        # New objects: whoever gets a bare reference could write into what is stored.
        whole_layers = {i: map_arrays(x, lambda a: a[...]) for i, x in layers}
        out: list[LayerSnapshot] = []
        for i, kind in enumerate(self.kinds):
            if kind != "append":
                out.append(whole_layers[i])
                continue
            slots = data.get(i, {})
            arrays = tuple(slots.get(s) for s in range(max(slots, default=1) + 1))
            out.append(LayerSnapshot("append", length, arrays, sum(x.nbytes for x in slots.values()), 0))
        return Snapshot(length, tuple(out))

    def checkpoint(self, snapshot: Snapshot) -> Checkpoint:
        """Own copies of the layers that do not append."""
        return Checkpoint(
            snapshot.length,
            tuple((i, own(x)) for i, x in enumerate(snapshot.layers) if x.kind != "append"),
        )


def _head(arrays: list[mx.array], length: int) -> list[mx.array]:
    """The first `length` tokens of stacked arrays laid end to end."""
    out: list[mx.array] = []
    for x in arrays:
        n = min(length, x.shape[TOKEN_AXIS + 1])
        if n > 0:
            out.append(x if n == x.shape[TOKEN_AXIS + 1] else x[:, :, :, :n])
        length -= n
    return out


@dataclass(eq=False, slots=True)
class Block:
    """Memory of `length` consecutive tokens: stacked arrays [layers, 1, heads, length, dim], or where to read them."""

    length: int
    arrays: list[mx.array] = field(default_factory=list[mx.array])
    source: Source | None = None
    index: int = 0
    """Which block of the source, and from which of its tokens."""
    offset: int = 0
    weight: int = 0
    """Bytes when in memory."""

    def __post_init__(self) -> None:
        self._weigh()

    def _weigh(self) -> None:
        if self.arrays:
            self.weight = sum(x.nbytes for x in self.arrays)

    @property
    def held(self) -> bool:
        return bool(self.arrays)

    @property
    def nbytes(self) -> int:
        return self.weight if self.arrays else 0

    @property
    def backed(self) -> bool:
        return self.source is not None and self.source.alive

    def split(self, at: int) -> tuple[Block, Block]:
        """The first `at` tokens and the rest, each in buffers of its own."""
        arrays = [mx.contiguous(x[:, :, :, :at]) for x in self.arrays]
        share = self.weight * at // self.length
        first = Block(at, arrays, self.source, self.index, self.offset, share)
        arrays = [mx.contiguous(x[:, :, :, at:]) for x in self.arrays]
        second = Block(self.length - at, arrays, self.source, self.index, self.offset + at, self.weight - share)
        mx.eval(first.arrays, second.arrays)
        return first, second

    def load(self) -> None:
        """Read back what was dropped. Raises OSError or ValueError when the source is gone or damaged."""
        if self.arrays:
            return
        if self.source is None:
            raise ValueError("a block without arrays and without a source")
        stop = self.offset + self.length
        self.arrays = [mx.contiguous(x[:, :, :, self.offset : stop]) for x in self.source.block(self.index)]
        self._weigh()

    def drop(self) -> None:
        self.arrays = []


@dataclass(eq=False, slots=True)
class Checkpoint:
    """Layer states that cannot be cut out of longer ones, at `length` tokens."""

    length: int
    layers: tuple[tuple[int, LayerSnapshot], ...] | None
    source: Source | None = None
    span: int | None = None
    """`oldest` when the layers are not in memory."""
    weight: int = 0
    """Bytes when in memory."""

    def __post_init__(self) -> None:
        self._weigh()

    def _weigh(self) -> None:
        if self.layers is not None:
            self.weight = sum(x.nbytes for _, x in self.layers)

    @property
    def oldest(self) -> int:
        """It can be restored at any length in [oldest, length]."""
        if self.layers is None:
            return self.length if self.span is None else self.span
        return max((x.trimmable_from for _, x in self.layers), default=0)

    @property
    def held(self) -> bool:
        return self.layers is not None

    @property
    def backed(self) -> bool:
        return self.source is not None and self.source.alive

    @property
    def nbytes(self) -> int:
        return 0 if self.layers is None else self.weight

    def arrays(self) -> list[mx.array]:
        return [a for _, x in self.layers or () for a in x.arrays()]

    def load(self) -> None:
        """Read back what was dropped. Raises OSError or ValueError when the source is gone or damaged."""
        if self.layers is None:
            if self.source is None:
                raise ValueError("a checkpoint without layers and without a source")
            self.layers = self.source.checkpoint()
            self._weigh()

    def drop(self) -> None:
        self.span, self.layers = self.oldest, None


def map_arrays(layer: LayerSnapshot, fn: Callable[[mx.array], mx.array]) -> LayerSnapshot:
    data = tuple(fn(x) if isinstance(x, mx.array) else x for x in layer.data)
    return replace(layer, data=data, nbytes=sum(x.nbytes for x in data if isinstance(x, mx.array)))


def own(layer: LayerSnapshot) -> LayerSnapshot:
    """The same values without a hold on the buffer that they were sliced from."""
    return map_arrays(layer, mx.contiguous)

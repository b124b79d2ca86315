"""State that a layer overwrites at every token: linear recurrences and the tail of a causal convolution.

Such a state cannot be cut: it is undone by computing it again. During a recorded round the family hands over a `Trace`
per slot (what entered the convolution, or the verbatim call of the recurrence), and a commit of fewer rows than the
round had rebuilds the slot from the state before the round and the kept rows. Knows no model and no formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import mlx.core as mx

from engine.kv_cache.base import Kind, LayerSnapshot, LayerState


class Trace(Protocol):
    """Enough of one round to compute a slot after any number of its rows."""

    def rebuild(self, keep: int, rows: mx.array | None) -> mx.array:
        """The slot after `keep` >= 1 rows, for all sequences, or for the sequences `rows` [n] only."""
        ...


@dataclass(frozen=True, slots=True)
class WindowTrace:
    """A causal convolution remembers its last inputs, so that any earlier memory is a slice of what it was given."""

    given: mx.array
    """[B, memory + width, channels]: the memory before the round, then its rows."""
    memory: int

    def rebuild(self, keep: int, rows: mx.array | None) -> mx.array:
        given = self.given if rows is None else self.given[rows]
        return given[:, keep : keep + self.memory]


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One call of a recurrence, by argument name. The same function runs again on the kept rows, so that the result is
    what a round of only these rows gives: no weight is read, and no kernel choice is left to chance."""

    function: Callable[..., tuple[mx.array, mx.array]]
    """Returns (outputs, state after the last row)."""
    arguments: Mapping[str, Any]
    timed: frozenset[str]
    """Names whose arrays are [B, T, ...]."""
    state: str
    """Name of the state before the round, [B, ...] or None."""

    def rebuild(self, keep: int, rows: mx.array | None) -> mx.array:
        return self.function(**{name: self._cut(name, x, keep, rows) for name, x in self.arguments.items()})[1]

    def _cut(self, name: str, value: Any, keep: int, rows: mx.array | None) -> Any:
        if not isinstance(value, mx.array) or not (name in self.timed or name == self.state):
            return value
        value = value if rows is None else value[rows]
        return value[:, :keep] if name in self.timed else value


class ArraysPort:
    """What the model sees: mlx-lm's protocol of a cache of plain arrays, without padding. Batches are ragged only in
    what a commit keeps, never inside a forward, so that there is nothing to mask."""

    lengths: ClassVar[None] = None
    left_padding: ClassVar[None] = None

    def __init__(self, owner: RecurrentState) -> None:
        self._owner = owner

    def __getitem__(self, slot: int) -> mx.array | None:
        return self._owner.slots[slot]

    def __setitem__(self, slot: int, value: mx.array) -> None:
        self._owner.slots[slot] = value

    def advance(self, width: int) -> None:
        """Lengths are counted by the transaction."""

    def make_mask(self, width: int) -> None:
        return None


class RecurrentState(LayerState):
    """Slots of B sequences, replaced as a whole by every forward; stands in for mlx-lm's ArraysCache."""

    kind: ClassVar[Kind] = "recurrent"

    def __init__(self, slots: int, rows: int = 1) -> None:
        self.lengths = [0] * rows
        self.slots: list[mx.array | None] = [None] * slots
        self.port = ArraysPort(self)
        self._before: list[mx.array | None] = []
        self._traces: dict[int, Trace] = {}
        self._width = 0
        self.recording = False
        """Whether the forward that runs now has to call `record`."""

    def make_mask(self, width: int) -> None:
        """Models ask the cache of their first recurrent layer."""
        return

    def record(self, slot: int, trace: Trace) -> None:
        """Called by the family while a recorded round runs."""
        if self.recording:
            self._traces[slot] = trace

    # What the engine calls ------------------------------------------------------------------------------------------

    def begin(self, width: int, record: bool) -> None:
        # Slots are replaced and never written into, so that references are a copy.
        self._before = list(self.slots)
        self._traces = {}
        self._width = width
        self.recording = record and width > 1

    def commit(self, keep: Sequence[int]) -> None:
        if any(k != self._width for k in keep):
            self.slots = [self._kept(slot, keep) for slot in range(len(self.slots))]
        elif self._width > 1 and not self.recording:
            self.slots = [_own(x) for x in self.slots]
        self.lengths = [n + k for n, k in zip(self.lengths, keep, strict=True)]
        self._close()

    def _kept(self, slot: int, keep: Sequence[int]) -> mx.array | None:
        """One slot after keep[b] rows of sequence b: one rebuild for each distinct amount."""
        after, before = self.slots[slot], self._before[slot]
        if all(k == 0 for k in keep) or after is None:
            return before
        if len(set(keep)) == 1:
            return self._trace(slot).rebuild(keep[0], None)
        out = mx.zeros_like(after) if before is None else before
        for amount in sorted(set(keep) - {0}):
            rows = mx.array([b for b, k in enumerate(keep) if k == amount], dtype=mx.int32)
            part = after[rows] if amount == self._width else self._trace(slot).rebuild(amount, rows)
            out = mx.put_along_axis(out, rows.reshape(-1, *[1] * (out.ndim - 1)), part, axis=0)
        return out

    def _trace(self, slot: int) -> Trace:
        if slot not in self._traces:
            # Keeping the state of rejected rows would be silently wrong for the rest of the answer.
            raise RuntimeError("a part of a round cannot be kept: its recurrence was not recorded")
        return self._traces[slot]

    def abort(self) -> None:
        self.slots = self._before
        self._close()

    def _close(self) -> None:
        self._before, self._traces, self._width, self.recording = [], {}, 0, False

    def snapshot(self, row: int) -> LayerSnapshot:
        n = self.lengths[row]
        data = tuple(None if x is None else _own(x[row : row + 1]) for x in self.slots)
        return LayerSnapshot(self.kind, n, data, sum(x.nbytes for x in data if x is not None), n)

    def restore(self, row: int, snap: LayerSnapshot, length: int) -> None:
        if len(self.lengths) != 1:
            raise ValueError("restore into a state of one row, then extend the batch with it")
        if length != snap.length:
            raise ValueError(f"a recurrent state exists at {snap.length} tokens only, not at {length}")
        self.slots = list(snap.data)
        self.lengths = [length]

    def select(self, rows: Sequence[int]) -> None:
        index = mx.array(list(rows), dtype=mx.int32)
        self.slots = [None if x is None else x[index] for x in self.slots]
        self.lengths = [self.lengths[r] for r in rows]

    def extend(self, other: RecurrentState) -> None:
        joined: list[mx.array | None] = []
        for mine, theirs in zip(self.slots, other.slots, strict=True):
            if mine is None or theirs is None:
                raise ValueError("only sequences that hold tokens can share a batch")
            joined.append(mx.concatenate([mine, theirs]))
        self.slots = joined
        self.lengths += other.lengths

    def arrays(self) -> list[mx.array]:
        return [x for x in self.slots if x is not None]


class ConvState(RecurrentState):
    """The memory of a short convolution alone; a slice restores it."""

    kind: ClassVar[Kind] = "conv"


def _own(slot: mx.array | None) -> mx.array | None:
    """The same values in a buffer of their own: a slice would keep the activations of a whole prompt alive."""
    return None if slot is None else mx.contiguous(slot)

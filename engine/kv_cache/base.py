"""What a target remembers of its sequences, and how a round is undone.

A `State` is a list of layer states, one per cache entry that the family's model asks for (not one per layer: families
share or skip entries). A round is a transaction: `begin(width)`, one forward, then `commit(keep)` with the number of
rows to keep per sequence, or `abort()`. Knows no model; the layer kinds are siblings in this folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

import mlx.core as mx

Kind = Literal["append", "window", "recurrent", "conv"]


@dataclass(frozen=True, slots=True)
class LayerSnapshot:
    """Immutable copy of one layer state of one row. `data` belongs to the kind that made it; lazy slices, never bare
    references to a buffer that is written later (spec: MLX aliasing rule)."""

    kind: Kind
    length: int
    """Tokens that it covers."""
    data: tuple[Any, ...]
    nbytes: int
    trimmable_from: int
    """It can be restored at any length in [trimmable_from, length]; equal to `length` for a checkpoint."""

    def arrays(self) -> list[mx.array]:
        return [x for x in self.data if isinstance(x, mx.array)]


class LayerState(ABC):
    """One cache entry for B rows. Speaks mlx-lm's cache protocol to the model (`update_and_fetch`, `offset`,
    `make_mask`, or item access for recurrent entries) and this protocol to the engine.

    Between transactions it covers exactly `lengths[b]` tokens of row b.
    """

    kind: ClassVar[Kind]
    lengths: list[int]

    @abstractmethod
    def begin(self, width: int, record: bool) -> None:
        """Prepare for one forward of `width` rows per sequence. `record` is False when all rows will be kept
        (prefill), so that nothing needs to be remembered for an undo of a part."""

    @abstractmethod
    def commit(self, keep: Sequence[int]) -> None:
        """Keep the first keep[b] (0..width) rows of row b. Exact: what follows equals never having seen the rest."""

    @abstractmethod
    def abort(self) -> None:
        """Back to what `begin` found."""

    @abstractmethod
    def snapshot(self, row: int) -> LayerSnapshot: ...

    @abstractmethod
    def restore(self, row: int, snap: LayerSnapshot, length: int) -> None:
        """Replace row `row` by the snapshot cut to `length` (see `LayerSnapshot.trimmable_from`). Never mutates it."""

    @abstractmethod
    def select(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order (rows leave a batch)."""

    @abstractmethod
    def extend(self, other: Any) -> None:
        """Append the rows of another state of the same kind (rows join a batch). `other` must not be used after."""

    @abstractmethod
    def arrays(self) -> list[mx.array]:
        """All arrays that must be evaluated for the state to be real."""

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sequence's whole state at `length` tokens."""

    length: int
    layers: tuple[LayerSnapshot, ...]

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self.layers)

    @property
    def trimmable_from(self) -> int:
        return max((s.trimmable_from for s in self.layers), default=0)

    def arrays(self) -> list[mx.array]:
        return [a for s in self.layers for a in s.arrays()]


class Transaction:
    """One open round. A context manager: leaving it without a commit, by an exception or not, aborts."""

    def __init__(self, state: State, width: int, record: bool) -> None:
        self._state = state
        self.width = width
        self._open = True
        for layer in state.layers:
            layer.begin(width, record)

    def commit(self, keep: int | Sequence[int]) -> None:
        """Keep the first `keep` rows of each sequence (one number for all, or one each); 0 <= keep <= width."""
        rows = [keep] * self._state.rows if isinstance(keep, int) else list(keep)
        if not self._open:
            raise RuntimeError("commit on a closed transaction")
        if len(rows) != self._state.rows or any(not 0 <= k <= self.width for k in rows):
            raise ValueError(f"keep {rows} does not fit {self._state.rows} rows of width {self.width}")
        for layer in self._state.layers:
            layer.commit(rows)
        self._state.lengths = [n + k for n, k in zip(self._state.lengths, rows, strict=True)]
        self._close()

    def abort(self) -> None:
        if self._open:
            for layer in self._state.layers:
                layer.abort()
            self._close()

    def _close(self) -> None:
        self._open = False
        self._state.transaction = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.abort()


class State:
    """All memory of a target for B sequences. `layers` is what the model gets as its cache list."""

    def __init__(self, layers: Sequence[LayerState], rows: int = 1) -> None:
        self.layers = list(layers)
        self.lengths = [0] * rows
        self.transaction: Transaction | None = None

    @property
    def rows(self) -> int:
        return len(self.lengths)

    def begin(self, width: int, *, record: bool = True) -> Transaction:
        """Open a round of `width` rows. One at a time: a second begin is an error of the caller."""
        if self.transaction is not None:
            raise RuntimeError("a round is already open on this state")
        self.transaction = Transaction(self, width, record)
        return self.transaction

    def snapshot(self, row: int = 0) -> Snapshot:
        """Immutable, lazy copy of one sequence; free until something later needs the old values."""
        self._idle()
        return Snapshot(self.lengths[row], tuple(layer.snapshot(row) for layer in self.layers))

    def restore(self, snap: Snapshot, length: int | None = None, row: int = 0) -> None:
        """Make row `row` what it was at `length` (default: the whole snapshot).

        Raises:
            ValueError: when a layer kind cannot be cut to that length.
        """
        self._idle()
        cut = snap.length if length is None else length
        if not snap.trimmable_from <= cut <= snap.length:
            raise ValueError(f"snapshot covers [{snap.trimmable_from}, {snap.length}], not {cut}")
        for layer, part in zip(self.layers, snap.layers, strict=True):
            layer.restore(row, part, cut)
        self.lengths[row] = cut

    def select(self, rows: Sequence[int]) -> None:
        self._idle()
        for layer in self.layers:
            layer.select(rows)
        self.lengths = [self.lengths[r] for r in rows]

    def extend(self, other: State) -> None:
        self._idle()
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            mine.extend(theirs)
        self.lengths += other.lengths

    def arrays(self) -> list[mx.array]:
        return [a for layer in self.layers for a in layer.arrays()]

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def _idle(self) -> None:
        if self.transaction is not None:
            raise RuntimeError("a round is open on this state")


StateFactory = Callable[[], State]

"""Rows that decode together: who they are, the round that they have under way, and whose fault it is when one fails.

Knows no forward; what a round does is the loop's business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from engine.decoding.logprobs import LogprobRows
from engine.decoding.sequence import Sequence
from engine.drafters.base import Drafter
from engine.kv_cache.base import State, Transaction
from engine.types import Proposal


class RowFailed(Exception):
    """A row's own parts (its drafters, its processors) failed while a round was built; the others are untouched."""

    def __init__(self, sequence: Sequence, cause: Exception) -> None:
        super().__init__(str(cause))
        self.sequence = sequence
        self.cause = cause


@contextlib.contextmanager
def blamed(sequence: Sequence) -> Generator[None]:
    """What fails in here is this row's fault alone."""
    try:
        yield
    except Exception as error:
        raise RowFailed(sequence, error) from error


@dataclass(slots=True)
class Row:
    """One sequence's part of a round under way."""

    sequence: Sequence
    proposal: Proposal
    part: Drafter[Any] | None
    """Who proposed; None for a plain step."""
    cap: int
    logprobs: LogprobRows | None = None
    """When asked for."""


@dataclass(slots=True)
class Flight:
    """A round whose graph is built but not read."""

    rows: list[Row]
    transaction: Transaction
    packed: mx.array
    """[B, 3 + max K] int32: accepted, token, faults, drafts."""
    taps: mx.array | None
    layers: tuple[int, ...]
    width: int
    began: float
    draft_ms: float
    build_ms: float = 0.0
    """Making the graph, the draft's included."""
    committed: bool = False

    @property
    def plain(self) -> bool:
        return self.width == 1


@dataclass(slots=True)
class Batch:
    """Rows that decode together, in the order of the state's rows."""

    sequences: list[Sequence] = field(default_factory=list[Sequence])
    state: State | None = None
    ahead: Flight | None = None
    """A plain round started before the one before it was read."""

    def settle_ahead(self) -> None:
        """Undo a round that ran ahead: rows are about to join, leave or switch."""
        if self.ahead is not None:
            self.ahead.transaction.abort()
            self.ahead = None

    def join(self, sequence: Sequence, state: State) -> None:
        """All or nothing: rows and sequences always correspond."""
        self.settle_ahead()
        if self.state is None or self.state.rows == 0:
            self.state = state
        else:
            try:
                self.state.extend(state)
            except BaseException:
                # Some layers may have the row already.
                self.state.select(range(len(self.sequences)))
                raise
        self.sequences.append(sequence)

    def leave(self, gone: Seq[Sequence]) -> None:
        self.settle_ahead()
        stay = [i for i, s in enumerate(self.sequences) if s not in gone]
        self.sequences = [self.sequences[i] for i in stay]
        if not stay:
            self.state = None
        elif self.state is not None:
            self.state.select(stay)

"""Bring a learned drafter that joins late up to date, without touching the live state.

The features it missed are taps of the target on tokens that were committed long ago, so the target reads them again on
a scratch state: only the tail that matters when the live state can be cut, from the start where it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from engine.drafters.base import Context, Drafter
from engine.state.base import Snapshot
from engine.targets.base import Target

TAIL = 1024
"""Committed tokens that are read again at most, where the state can be cut; older context is left out."""
CHUNK = 256


def backfill(
    target: Target,
    drafter: Drafter[Any],
    context: Context,
    tokens: Sequence[int],
    snapshot: Snapshot | None = None,
    tail: int = TAIL,
) -> None:
    """Let `context` cover tokens[:len(tokens)]. snapshot: the live state at that length or later, if there is one."""
    state = target.new_state()
    position = context.length
    skip = getattr(context, "skip", None)
    if snapshot is not None and skip is not None:
        position = max(position, len(tokens) - tail)
    cuttable = snapshot is not None and snapshot.trimmable_from <= position <= snapshot.length
    if cuttable and snapshot is not None and position:
        state.restore(snapshot, position)
    elif position:
        _read(target, state, tokens[:position])
    if skip is not None and position > context.length:
        skip(position)
    while position < len(tokens):
        ids = tokens[position : position + CHUNK]
        with state.begin(len(ids), record=False) as transaction:
            body = target.body(mx.array([list(ids)], dtype=mx.int32), state, drafter.taps)
            transaction.commit(len(ids))
        assert body.taps is not None
        drafter.observe(context, body.taps[0], position, ids)
        mx.eval(state.arrays(), context.arrays())
        position += len(ids)


def _read(target: Target, state: Any, tokens: Sequence[int]) -> None:
    """Run tokens through a scratch state for its memory alone."""
    for at in range(0, len(tokens), CHUNK):
        ids = list(tokens[at : at + CHUNK])
        with state.begin(len(ids), record=False) as transaction:
            target.body(mx.array([ids], dtype=mx.int32), state)
            transaction.commit(len(ids))
        mx.eval(state.arrays())

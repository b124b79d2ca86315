"""Bring a learned drafter that joins late up to date, without touching the live state.

The features it missed are taps of the target on tokens that were committed long ago, so the target reads them again on
a scratch state: only the tail that matters when the live state can be cut, from the start where it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from engine.drafters.base import Context, Drafter
from engine.kv_cache.base import Snapshot, State
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
    embeddings: mx.array | None = None,
) -> None:
    """Let `context` cover tokens[:len(tokens)]. snapshot: the live state at that length or later, if there is one.
    embeddings [1, T, H] stand for the first T tokens (pictures)."""
    state = target.new_state()
    position = context.length
    skip = getattr(context, "skip", None)
    if snapshot is not None and skip is not None:
        position = max(position, len(tokens) - tail)
    cuttable = snapshot is not None and snapshot.trimmable_from <= position <= snapshot.length
    if cuttable and snapshot is not None and position:
        state.restore(snapshot, position)
    elif position:
        for ids, _, rows in _parts(tokens, 0, position, embeddings):
            _read(target, state, ids, rows)
    if skip is not None and position > context.length:
        skip(position)
    for ids, at, rows in _parts(tokens, position, len(tokens), embeddings):
        taps = _read(target, state, ids, rows, drafter.taps)
        assert taps is not None
        drafter.observe(context, taps[0], at, ids)
        mx.eval(context.arrays())


Part = tuple[Sequence[int], int, mx.array | None]
"""Tokens, the position of the first, and the embeddings that stand for them."""


def _parts(tokens: Sequence[int], begin: int, end: int, embeddings: mx.array | None) -> Iterator[Part]:
    """Chunks of tokens[begin:end]; those with given embeddings and those without are not mixed."""
    given = 0 if embeddings is None else embeddings.shape[1]
    while begin < end:
        stop = min(begin + CHUNK, end, given if begin < given else end)
        yield tokens[begin:stop], begin, embeddings[:, begin:stop] if embeddings is not None and begin < given else None
        begin = stop


def _read(
    target: Target, state: State, ids: Sequence[int], embeddings: mx.array | None, taps: tuple[int, ...] = ()
) -> mx.array | None:
    """Run tokens through a scratch state; returns their taps."""
    with state.begin(len(ids), record=False) as transaction:
        body = target.body(mx.array([list(ids)], dtype=mx.int32), state, taps, embeddings)
        transaction.commit(len(ids))
    mx.eval(state.arrays())
    return body.taps

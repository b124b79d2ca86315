"""Running a target by hand, a round at a time."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.kv_cache.base import State
from engine.kv_cache.recurrent import RecurrentState
from engine.targets.families.dense import MlxTarget
from engine.targets.self_check import feed


def prefilled(target: MlxTarget, tokens: Sequence[int]) -> State:
    state = target.new_state()
    feed(target, state, tokens, record=False)
    return state


def same(target: MlxTarget, snap: object) -> State:
    """A new state restored from a snapshot."""
    state = target.new_state()
    state.restore(snap)  # type: ignore[arg-type]
    return state


def recurrent_slots(state: State) -> list[mx.array]:
    return [x for layer in state.layers if isinstance(layer, RecurrentState) for x in layer.arrays()]


def distance(a: Sequence[mx.array], b: Sequence[mx.array]) -> float:
    """Largest absolute difference; 0.0 means bit-equal."""
    assert len(a) == len(b)
    return max((float(mx.max(mx.abs(x - y))) for x, y in zip(a, b, strict=True)), default=0.0)


def tokens_of(count: int, seed: int = 0, vocab: int = 288) -> list[int]:
    """Ordinary ids, varied."""
    return [(7 + 31 * i + 97 * seed + 13 * i * i) % vocab for i in range(count)]

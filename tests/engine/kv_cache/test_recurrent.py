"""Recurrent state on a toy recurrence: what is recorded, rebuilt, refused, snapshotted and batched."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import pytest

from engine.kv_cache.base import State
from engine.kv_cache.recurrent import CallTrace, RecurrentState, WindowTrace

MEMORY = 2


def recurrence(x: mx.array, scale: float, state: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """state <- scale * state + row, for each row of x [B, T, 1]."""
    at = mx.zeros((x.shape[0], 1)) if state is None else state
    for t in range(x.shape[1]):
        at = at * scale + x[:, t]
    return x, at


def forward(layer: RecurrentState, x: mx.array) -> None:
    """What a recurrent layer does with its cache, and what a family records."""
    port = layer.port
    before = port[0]
    given = mx.concatenate([mx.zeros((x.shape[0], MEMORY, 1)) if before is None else before, x], axis=1)
    port[0] = given[:, -MEMORY:]
    layer.record(0, WindowTrace(given, MEMORY))
    arguments = {"x": x, "scale": 0.5, "state": port[1]}
    layer.record(1, CallTrace(recurrence, arguments, frozenset({"x"}), "state"))
    port[1] = recurrence(x, 0.5, port[1])[1]
    port.advance(x.shape[1])


def ran(rows: Sequence[Sequence[float]]) -> State:
    """A state of one round over each of the sequences."""
    state = State([RecurrentState(2)])
    feed(state, rows, [len(rows[0])] * len(rows))
    return state


def feed(state: State, rows: Sequence[Sequence[float]], keep: Sequence[int], record: bool = True) -> None:
    with state.begin(len(rows[0]), record=record) as round:
        forward(state.layers[0], mx.array(rows)[..., None])  # type: ignore[arg-type]
        round.commit(keep)


def values(state: State) -> list[list[float]]:
    return [x.reshape(x.shape[0], -1).tolist() for x in state.arrays()]


@pytest.mark.parametrize("keep", range(6))
def test_partial_keep_equals_one_row_at_a_time(keep: int) -> None:
    rows = [1.0, 2.0, 3.0, 4.0, 5.0]
    warm, cold = ran([[7.0, 8.0]]), ran([[7.0, 8.0]])
    feed(warm, [rows], [keep])
    for x in rows[:keep]:
        feed(cold, [[x]], [1])
    assert values(warm) == values(cold)
    assert warm.lengths == [2 + keep]


@pytest.mark.parametrize("keeps", [(0, 1, 3), (3, 3, 3), (0, 0, 0), (2, 0, 2), (1, 2, 2)])
def test_rows_of_a_batch_keep_different_amounts(keeps: tuple[int, int, int]) -> None:
    singles = [ran([[float(b), b + 1.0]]) for b in range(3)]
    batch = ran([[0.0, 1.0]])
    for b in (1, 2):
        batch.extend(ran([[float(b), b + 1.0]]))
    rows = [[10.0 * b + i for i in range(3)] for b in range(3)]
    feed(batch, rows, keeps)
    for single, row, keep in zip(singles, rows, keeps, strict=True):
        feed(single, [row], [keep])
    for b, single in enumerate(singles):
        assert [x[b] for x in values(batch)] == [x[0] for x in values(single)]
    assert batch.lengths == [2 + k for k in keeps]


def test_an_empty_state_can_refuse_everything() -> None:
    state = State([RecurrentState(2)])
    feed(state, [[1.0, 2.0]], [0])
    assert state.arrays() == []
    assert state.lengths == [0]


def test_a_part_of_an_unrecorded_round_cannot_be_kept() -> None:
    """Silence here would leave rejected rows in the state for the rest of the answer."""
    state = ran([[1.0]])
    with pytest.raises(RuntimeError, match="not recorded"):
        feed(state, [[2.0, 3.0]], [1], record=False)


def test_full_accept_needs_no_record() -> None:
    state, other = ran([[1.0]]), ran([[1.0]])
    feed(state, [[2.0, 3.0]], [2], record=False)
    feed(other, [[2.0, 3.0]], [2])
    assert values(state) == values(other)


def test_abort_restores() -> None:
    state = ran([[1.0, 2.0]])
    before = values(state)
    with state.begin(3):
        forward(state.layers[0], mx.ones((1, 3, 1)))  # type: ignore[arg-type]
    assert values(state) == before
    assert state.lengths == [2]


def test_snapshot_is_a_checkpoint_and_immutable() -> None:
    state = ran([[1.0, 2.0]])
    snap = state.snapshot()
    before = values(state)
    assert snap.trimmable_from == snap.length == 2
    feed(state, [[9.0, 9.0]], [2])
    fresh = State([RecurrentState(2)])
    fresh.restore(snap)
    assert values(fresh) == before
    with pytest.raises(ValueError, match="covers"):
        fresh.restore(snap, 1)


def test_rows_leave_and_join() -> None:
    batch = ran([[1.0], [2.0], [3.0]][:1])
    batch.extend(ran([[2.0]]))
    batch.extend(ran([[3.0]]))
    batch.select([2, 0])
    assert values(batch)[1] == [[3.0], [1.0]]
    assert values(batch)[1][:1] == values(ran([[3.0]]))[1]
    snap = batch.snapshot(1)
    alone = State([RecurrentState(2)])
    alone.restore(snap)
    assert values(alone) == values(ran([[1.0]]))


def test_a_prompt_does_not_stay_alive_behind_its_last_rows() -> None:
    """A slice of the activations of a long prompt would pin all of them."""
    mx.clear_cache()
    before = mx.get_active_memory()
    state = State([RecurrentState(2)])
    with state.begin(200_000, record=False) as round:
        layer = state.layers[0]
        assert isinstance(layer, RecurrentState)
        given = mx.random.normal((1, 200_000, 1))
        layer.port[0] = given[:, -MEMORY:]
        layer.port[1] = mx.zeros((1, 1))
        round.commit(200_000)
    mx.eval(state.arrays())
    del given
    assert mx.get_active_memory() - before < 100_000

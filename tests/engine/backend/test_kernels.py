"""Kernel choices: checked against the reference, raced, and off where they were never run."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine.backend.kernels import Alternative, OpDispatch

HERE = frozenset({"cpu"})


class Clock:
    """Goes on when an operation says that it took time, and at no other moment."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture
def dispatch() -> OpDispatch:
    return OpDispatch("cpu")


def slow(x: mx.array, w: mx.array) -> mx.array:
    CLOCK.now += 0.05
    return x @ w


def slower(x: mx.array, w: mx.array) -> mx.array:
    CLOCK.now += 0.15
    return x @ w


def fast(x: mx.array, w: mx.array) -> mx.array:
    CLOCK.now += 0.01
    return x @ w


def inputs() -> tuple[mx.array, mx.array]:
    return mx.random.normal((4, 16)), mx.random.normal((16, 8))


def choose(dispatch: OpDispatch, *others: Alternative, reference=slow):
    return dispatch.race("matmul", (4, 16, 8), reference, others, inputs, repeats=3, clock=CLOCK)


def test_a_checked_winner_is_used_at_its_shape_only(dispatch: OpDispatch):
    choice = choose(dispatch, Alternative("quick", fast, HERE))
    assert choice.name == "quick"
    assert choice.speedup > 1
    assert dispatch.pick("matmul", (4, 16, 8), slow) is fast
    assert dispatch.pick("matmul", (5, 16, 8), slow) is slow
    assert dispatch.tag == "matmul@4x16x8=quick"


def test_what_was_never_run_here_stays_off(dispatch: OpDispatch):
    choice = choose(dispatch, Alternative("metal kernel", fast, frozenset({"metal"})))
    assert choice.name == "reference"
    assert "never run on cpu" in choice.reason
    assert dispatch.pick("matmul", (4, 16, 8), slow) is slow
    assert dispatch.tag == ""


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (lambda x, w: x @ w + 0.1, "differs by"),
        (lambda x, w: (x @ w)[:1], "gives shape"),
        (lambda x, w: x @ x, "refused"),
    ],
)
def test_wrong_kernels_are_refused_with_a_reason(dispatch: OpDispatch, op, reason: str):
    choice = choose(dispatch, Alternative("wrong", op, HERE))
    assert choice.name == "reference"
    assert reason in choice.reason


def test_a_loser_of_the_race_is_not_used(dispatch: OpDispatch):
    choice = choose(dispatch, Alternative("other", slower, HERE))
    assert choice.name == "reference"
    assert "not faster" in choice.reason

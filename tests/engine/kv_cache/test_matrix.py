"""Rollback is exact for every layer kind: accept any k, continue at any width, across the window's edge."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from fakes import tiny_llama

from engine.kv_cache.base import State
from engine.kv_cache.sliding_window import SLACK, WindowKV

WINDOW = 8
BLOCK = 6


@pytest.fixture(scope="module", params=["append", "window"])
def target(request: pytest.FixtureRequest) -> Any:
    return tiny_llama(window=WINDOW if request.param == "window" else None, layers=3)


def ids(n: int, seed: int) -> list[int]:
    return [(7 * seed + 13 * i * i + 5 * i) % 64 for i in range(n)]


def feed(target: Any, state: State, tokens: list[int], keep: int | None = None) -> mx.array:
    with state.begin(len(tokens)) as transaction:
        body = target.body(mx.array([tokens]), state)
        transaction.commit(len(tokens) if keep is None else keep)
    return target.logits(body.hidden)[0]


def cold(target: Any, tokens: list[int]) -> tuple[State, mx.array]:
    state = target.new_state()
    return state, feed(target, state, tokens)


def visible(state: State) -> list[mx.array]:
    """What later queries can see of each layer, in order of position."""
    out: list[mx.array] = []
    for layer in state.layers:
        keys, values = layer.snapshot(0).data[:2]
        last = WINDOW - 1 if layer.kind == "window" else keys.shape[2]
        out += [keys[:, :, -last:], values[:, :, -last:]]
    return out


@pytest.mark.parametrize("prompt", [2, 5, 7, 8, 9, 13, 30])
@pytest.mark.parametrize("keep", range(1, BLOCK + 1))
def test_accept_k_then_any_width_equals_a_cold_run(target, prompt, keep):
    head, block = ids(prompt, 1), ids(BLOCK, 2)
    for width in (1, 2, 5):
        tail = ids(width, 3)
        state, _ = cold(target, head)
        feed(target, state, block, keep)
        logits = feed(target, state, tail)
        fresh, expected = cold(target, [*head, *block[:keep], *tail])
        assert state.lengths == fresh.lengths
        assert mx.allclose(logits, expected[-width:], atol=2e-4, rtol=1e-4)
        for mine, theirs in zip(visible(state), visible(fresh), strict=True):
            assert mx.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("prompt", [5, 8, 20])
def test_abort_is_as_if_nothing_happened(target, prompt):
    head = ids(prompt, 1)
    state, _ = cold(target, head)
    for width in (1, 4):
        with state.begin(width):
            target.body(mx.array([ids(width, 9)]), state)
        assert state.transaction is None
    logits = feed(target, state, [11])
    _, expected = cold(target, [*head, 11])
    assert mx.allclose(logits, expected[-1:], atol=2e-4)


def test_an_exception_aborts_the_round(target):
    state, _ = cold(target, ids(6, 1))

    def fails() -> None:
        with state.begin(3):
            target.body(mx.array([ids(3, 2)]), state)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert state.lengths == [6]
    logits = feed(target, state, [5])
    assert mx.allclose(logits, cold(target, [*ids(6, 1), 5])[1][-1:], atol=2e-4)


def test_many_rounds_cross_every_compaction(target):
    """A long alternation of wide, narrow, rejected and plain rounds, far beyond the buffer's slack."""
    state, _ = cold(target, ids(4, 1))
    kept = ids(4, 1)
    for step in range(60):
        width = (1, 5, 2, 7, 1, 1, 3)[step % 7]
        block, keep = ids(width, step), 1 + step % width
        logits = feed(target, state, block, keep)
        kept += block[:keep]
        if step % 6 == 5 or len(kept) > 4 * SLACK:
            _, expected = cold(target, kept)
            assert mx.allclose(logits[keep - 1], expected[-1], atol=5e-4, rtol=1e-3)
    assert len(kept) > SLACK + WINDOW


def test_the_stock_rotating_cache_fails_this_matrix():
    """Why the window cache is our own: with mlx-lm's in its place the matrix does not hold."""
    from mlx_lm.models.cache import RotatingKVCache

    class Stock:
        """mlx-lm's ring behind our protocol, rolled back the way its `trim` offers."""

        kind = "window"

        def __init__(self) -> None:
            self.cache = RotatingKVCache(WINDOW)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.cache, name)

        def begin(self, width: int, record: bool) -> None:
            self.width = width

        def commit(self, keep: list[int]) -> None:
            self.cache.trim(self.width - keep[0])

        def abort(self) -> None:
            self.cache.trim(self.width)

    target = tiny_llama(window=WINDOW, layers=3)
    wrong = 0
    for keep in range(1, BLOCK):
        head, block = ids(13, 1), ids(BLOCK, 2)
        state = target.new_state()
        state.layers = [Stock() if isinstance(layer, WindowKV) else layer for layer in state.layers]
        feed(target, state, head)
        feed(target, state, block, keep)
        logits = feed(target, state, [3])
        _, expected = cold(target, [*head, *block[:keep], 3])
        wrong += not mx.allclose(logits, expected[-1:], atol=1e-2)
    assert wrong == BLOCK - 1


def test_snapshots_are_immutable_and_cut_where_they_say(target):
    """What is stored never changes while the donor goes on, and restores at any length that it promises."""
    head = ids(20, 1)
    state, _ = cold(target, head)
    snap = state.snapshot()
    before = [mx.array(a) for a in snap.arrays()]
    mx.eval(before)
    for step in range(5):
        feed(target, state, ids(6, step), 1 + step)
    for old, now in zip(before, snap.arrays(), strict=True):
        assert mx.array_equal(old, now)
    for length in range(max(1, snap.trimmable_from), 21):
        fresh = target.new_state()
        fresh.restore(snap, length)
        logits = feed(target, fresh, [9, 8])
        _, expected = cold(target, [*head[:length], 9, 8])
        assert mx.allclose(logits, expected[-2:], atol=2e-4, rtol=1e-4)
    for old, now in zip(before, snap.arrays(), strict=True):
        assert mx.array_equal(old, now)


def test_rows_of_a_batch_roll_back_by_different_amounts(target):
    """Three sequences of different lengths in one state equal three alone, whatever each keeps."""
    heads = [ids(5, 1), ids(11, 2), ids(24, 3)]
    batch, _ = cold(target, heads[0])
    for head in heads[1:]:
        batch.extend(cold(target, head)[0])
    kept = [list(h) for h in heads]
    for step, keep in enumerate(([1, 4, 2], [4, 1, 3], [2, 2, 4], [3, 4, 1])):
        blocks = [ids(4, 10 * step + r) for r in range(3)]
        with batch.begin(4) as transaction:
            body = target.body(mx.array(blocks), batch)
            transaction.commit(keep)
        logits = target.logits(body.hidden)
        for r in range(3):
            _, expected = cold(target, [*kept[r], *blocks[r]])
            assert mx.allclose(logits[r], expected[-4:], atol=5e-4, rtol=1e-3)
            kept[r] += blocks[r][: keep[r]]
    batch.select([2, 0])
    with batch.begin(1) as transaction:
        body = target.body(mx.array([[1], [2]]), batch)
        transaction.commit(1)
    for r, (row, token) in enumerate(((2, 1), (0, 2))):
        _, expected = cold(target, [*kept[row], token])
        assert mx.allclose(target.logits(body.hidden)[r], expected[-1:], atol=5e-4, rtol=1e-3)


def test_misuse_is_refused(target):
    state, _ = cold(target, ids(3, 1))
    with state.begin(2) as transaction:
        target.body(mx.array([[1, 2]]), state)
        with pytest.raises(RuntimeError):
            state.begin(1)
        with pytest.raises(RuntimeError):
            state.snapshot()
        with pytest.raises(ValueError, match="does not fit"):
            transaction.commit(3)
        transaction.commit(2)
        with pytest.raises(RuntimeError):
            transaction.commit(1)
    with pytest.raises(ValueError, match="snapshot covers"):
        state.restore(state.snapshot(), 99)

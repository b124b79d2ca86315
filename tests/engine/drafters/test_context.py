"""The context store: absolute positions, windows, snapshots, and no copy of the context in a round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.load import load_drafter
from engine.drafters.nn.kv_cache import WAITING, BlockContext, LayerRows, LayerStore
from tests.cases import examples
from tests.engine.drafters import synthetic as s


def rows(start: int, n: int) -> mx.array:
    """[1, 1, n, 2], each row holding its position."""
    at = mx.arange(start, start + n, dtype=mx.float32)
    return mx.broadcast_to(at[None, None, :, None], (1, 1, n, 2))


def no_features(features: Sequence[mx.array], starts: Sequence[int]) -> list[LayerRows]:
    raise AssertionError("nothing waits here")


def seen(store: LayerStore, width: int = 3) -> tuple[Any, int]:
    k, v, first = store.with_block(rows(1000, width), rows(1000, width))
    assert mx.array_equal(k, v)
    assert k[0, 0, -width:, 0].tolist() == [1000.0 + i for i in range(width)]
    return k[0, 0, :-width, 0].tolist(), first


@examples(60)
@given(steps=st.lists(st.integers(1, 400), min_size=1, max_size=8), keep=st.sampled_from([None, 5, 300]))
def test_a_block_sees_the_last_rows_at_their_positions(steps: list[int], keep: int | None) -> None:
    store, at = LayerStore(keep, 3), 0
    for n in steps:
        store.append(rows(at, n), rows(at, n), at)
        at += n
        expected = list(range(at))[-(keep or at) :]
        got, first = seen(store)
        assert got == expected
        assert first == expected[0]


@examples(60)
@given(
    steps=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    looks=st.sets(st.integers(0, 11)),
    keep=st.sampled_from([None, 5, 40]),
)
def test_waiting_features_end_where_they_would_have_been(steps: list[int], looks: set[int], keep: int | None) -> None:
    """However rows come in, and whenever somebody looks."""

    def project(features: Sequence[mx.array], starts: Sequence[int]) -> list[LayerRows]:
        made: list[LayerRows] = []
        for rows_, start in zip(features, starts, strict=True):
            assert rows_[0, 0].item() == start
            same = mx.broadcast_to(rows_[:, 0][None, None, :, None], (1, 1, rows_.shape[0], 2))
            made.append([(same, same)])
        return made

    context = BlockContext([keep], 3, project)
    for i, n in enumerate(steps):
        context.take(mx.broadcast_to(mx.arange(context.length, context.length + n)[:, None], (n, 4)).astype(mx.float32))
        if i in looks:
            context.arrays()
    expected = [float(x) for x in range(context.length)][-(keep or context.length) :]
    assert seen(context.layers[0]) == (expected, expected[0])
    assert context.length == sum(steps)


def test_a_drafter_that_is_not_asked_projects_one_row_in_many() -> None:
    calls: list[int] = []

    def project(features: Sequence[mx.array], starts: Sequence[int]) -> list[LayerRows]:
        calls.append(features[0].shape[0])
        return [[(rows(starts[0], calls[-1]), rows(starts[0], calls[-1]))]]

    context = BlockContext([None], 3, project)
    for _ in range(100):
        context.take(mx.zeros((1, 4)))
    assert calls == [WAITING] * 3
    assert seen(context.layers[0])[0] == [float(i) for i in range(100)]
    assert calls == [WAITING, WAITING, WAITING, 100 - 3 * WAITING]
    context.take(mx.zeros((512, 4)))
    assert calls[-1] == 512, "a prompt's features are never held"
    context.take(mx.zeros((3, 4)))
    context.skip(700)
    assert seen(context.layers[0])[0] == []


def test_a_gap_drops_what_lies_before_it() -> None:
    store = LayerStore(None, 3)
    store.append(rows(0, 4), rows(0, 4), 0)
    store.append(rows(10, 2), rows(10, 2), 10)
    assert seen(store) == ([10.0, 11.0], 10)


@examples(40)
@given(
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    cut=st.integers(0, 240),
    more=st.integers(0, 300),
    keep=st.sampled_from([None, 5]),
)
def test_restore_is_the_past_and_snapshots_do_not_change(
    steps: list[int], cut: int, more: int, keep: int | None
) -> None:
    context = BlockContext([keep, None], 3, no_features)
    store = context.layers[0]
    for n in steps:
        for layer in context.layers:
            layer.append(rows(context.length, n), rows(context.length, n), context.length)
        context.length += n
    snap = context.snapshot()
    cut = min(cut, snap.length)
    before = [np.array(a) for a in snap.arrays()]
    if more:
        for layer in context.layers:
            layer.append(rows(500, more), rows(500, more), context.length)
        seen(store)
    for target in (context, BlockContext([keep, None], 3, no_features)):
        target.restore(snap, cut)
        assert target.length == cut
        got, first = seen(target.layers[0])
        assert got == [float(i) for i in range(first, cut)]
        assert seen(target.layers[1])[0] == [float(i) for i in range(cut)]
        for layer in target.layers:
            layer.append(rows(cut, 2), rows(cut, 2), cut)
        assert seen(target.layers[1])[0] == [float(i) for i in range(cut + 2)]
    for old, new in zip(before, snap.arrays(), strict=True):
        np.testing.assert_array_equal(old, np.array(new))


def test_restore_past_the_end_is_an_error() -> None:
    context = BlockContext([None], 3, no_features)
    with pytest.raises(ValueError, match="covers 0 positions, not 1"):
        context.restore(context.snapshot(), 1)


def drafts(drafter: Any, context: BlockContext) -> list[int]:
    from engine.sampling.sampler import RowSampler
    from engine.types import Sampling

    return drafter.propose(context, 5, drafter.max_draft, RowSampler(Sampling(), [0], s.V)).tokens.tolist()


@pytest.mark.parametrize("name", ["deepspec", "zlab", "nemotron", "dflash2", "speculators-dspark"])
def test_a_restored_context_drafts_as_a_fresh_one(name: str, tmp_path: Path) -> None:
    drafter = load_drafter(s.LAYOUTS[name]().save(tmp_path), s.Lender())
    taps = mx.random.normal((60, 3 * s.H), key=mx.random.key(3))
    context = drafter.new_context()
    drafter.observe(context, taps[:40], 0, [0] * 40)
    snap = context.snapshot()
    expected = drafts(drafter, context)
    drafter.observe(context, taps[40:], 40, [0] * 20)
    assert context.length == 60
    for target in (context, drafter.new_context()):
        target.restore(snap, 40)
        assert drafts(drafter, target) == expected
    cut = drafter.new_context()
    cut.restore(snap, 30)
    fresh = drafter.new_context()
    drafter.observe(fresh, taps[:30], 0, [0] * 30)
    if all(rule.window is None for rule in drafter.config.layers):
        assert drafts(drafter, cut) == drafts(drafter, fresh)
    assert cut.length == fresh.length


def test_observe_must_go_on_where_the_context_ends(tmp_path: Path) -> None:
    drafter = load_drafter(s.deepspec().save(tmp_path), s.Lender())
    context = drafter.new_context()
    with pytest.raises(ValueError, match="covers 0 positions and cannot go on at 3"):
        drafter.observe(context, mx.zeros((2, 3 * s.H)), 3, [0, 0])
    with pytest.raises(ValueError, match="cannot go on at 0"):
        drafter.observe(context, None, 0, [0])


def test_a_prompt_of_one_token_and_an_empty_context(tmp_path: Path) -> None:
    drafter = load_drafter(s.deepspec().save(tmp_path), s.Lender())
    context = drafter.new_context()
    assert len(drafts(drafter, context)) == drafter.max_draft
    drafter.observe(context, mx.zeros((1, 3 * s.H)), 0, [0])
    assert len(drafts(drafter, context)) == drafter.max_draft


def test_full_layers_see_a_bounded_context(tmp_path: Path) -> None:
    """Two contexts that differ only before the last `context_rows` rows draft the same."""
    drafter = load_drafter(s.deepspec().save(tmp_path), s.Lender(), context_rows=32)
    taps = mx.random.normal((700, 3 * s.H), key=mx.random.key(3))
    other = mx.concatenate([taps[:660] * -2.0, taps[660:]])
    results = []
    for features in (taps, other):
        context = drafter.new_context()
        drafter.observe(context, features[:600], 0, [0] * 600)
        for at in range(600, 700, 10):
            drafter.observe(context, features[at : at + 10], at, [0] * 10)
        assert context.layers[0].visible == 32
        results.append(np.array(drafter.block([context], [5], 7)))
    np.testing.assert_array_equal(*results)
    assert context.nbytes < 700 * 2 * s.KV * s.DIM * 4 * s.LAYERS


def test_a_round_copies_nothing_of_the_context() -> None:
    """Bytes allocated by a round: the block, not the context, however long that is."""
    store = LayerStore(None, 4)
    grown: list[int] = []
    for depth in (1000, 4000):
        n = depth - store.length
        store.append(mx.zeros((1, 2, n, 64)), mx.zeros((1, 2, n, 64)), store.length)
        mx.eval(store.k, store.v)
        peak = 0
        for _ in range(3):
            block = mx.ones((1, 2, 4, 64))
            mx.eval(block)
            mx.clear_cache()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            keys, values, _ = store.with_block(block, block)
            out = (keys[:, :, -1].sum() + values[:, :, -1].sum()).item()
            assert out == 256
            del keys, values
            store.append(block[:, :, :2], block[:, :, :2], store.length)
            mx.eval(store.k, store.v)
            peak = max(peak, mx.get_peak_memory() - before)
        grown.append(peak)
    context_bytes = 4000 * 2 * 2 * 64 * 4
    assert max(grown) < context_bytes / 10, grown

"""The self-test names each of six planted faults, the kind first that was planted; without one it finds nothing."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from engine.backend import rope
from engine.diagnostics.self_test.findings import Finding
from engine.diagnostics.self_test.run import self_test
from engine.kv_cache import full, recurrent, sliding_window
from engine.kv_cache.recurrent import WindowTrace
from engine.kv_cache.sliding_window import WindowKV
from engine.prefix_cache.cache import PrefixCache

CHECKS = ("kernels", "rope", "masks", "windows", "rollback", "prefix cache", "reading")


def failures(family: str) -> list[Finding]:
    return self_test("test", precisions=["float32"], families=[family], checks=CHECKS).failures


@pytest.mark.parametrize("family", ["qwen3_moe", "muse_glimmer", "lfm2"])
def test_nothing_is_found_where_nothing_is_planted(family: str) -> None:
    assert failures(family) == []


def test_a_rope_that_is_one_position_late(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = full.offsets
    monkeypatch.setattr(full, "offsets", lambda lengths: honest([n + (n > 4) for n in lengths]))
    assert failures("qwen3_moe")[0].check == "rope"


def test_a_rope_whose_table_is_cut_one_row_late(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rope.Tables._cut
    monkeypatch.setattr(rope, "tabled", lambda: True)
    monkeypatch.setattr(rope.Tables, "_cut", lambda self, at, rows, width: honest(self, at + (at > 200), rows, width))
    assert {"kernels", "rope"} <= {found.check for found in failures("qwen3_moe")}


def test_a_mask_that_shows_the_next_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(width: int, before: int, window: int | None, return_array: bool) -> Any:
        queries, keys = mx.arange(before, before + width)[:, None], mx.arange(before + width)[None]
        return keys <= queries + 1

    monkeypatch.setattr(full, "uniform_mask", seen)
    found = failures("qwen3_moe")
    assert found[0].check == "masks"
    assert "does not see" in found[0].detail


def test_a_window_that_is_compacted_one_row_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def compact(self: WindowKV, buffer: mx.array, kept: Any, capacity: int) -> mx.array:
        rows = [
            mx.pad(buffer[b : b + 1, :, n - k - 1 : n - 1], [(0, 0), (0, 0), (0, capacity - k), (0, 0)])
            for b, (n, k) in enumerate(zip(self.used, kept, strict=True))
        ]
        return mx.concatenate(rows)

    monkeypatch.setattr(WindowKV, "_compact", compact)
    assert failures("muse_glimmer")[0].check == "windows"


def test_a_window_that_is_one_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = sliding_window.uniform_mask
    monkeypatch.setattr(
        sliding_window, "uniform_mask", lambda width, before, window, array: honest(width, before, window + 1, array)
    )
    assert failures("muse_glimmer")[0].check == "windows"


def test_a_convolution_that_is_rolled_back_one_row_short(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = WindowTrace.rebuild
    monkeypatch.setattr(WindowTrace, "rebuild", lambda self, keep, rows: honest(self, keep - 1, rows))
    found = failures("lfm2")
    assert found[0].check == "rollback"
    assert "conv state" in found[0].detail


def test_a_recurrence_that_keeps_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent.RecurrentState, "_kept", lambda self, slot, keep: self.slots[slot])
    found = failures("qwen3_5")
    assert found[0].check == "rollback"
    assert "recurrent state" in found[0].detail


def test_an_eviction_that_damages_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The structure is sound, and the bytes are another's: no bookkeeping can notice."""
    honest = PrefixCache.put

    def put(self: PrefixCache, *args: Any, **kwargs: Any) -> bool:
        before = self.stats().evicted
        kept = honest(self, *args, **kwargs)
        if self.stats().evicted > before:
            for node in self._spaces.get("").tree:
                for block in node.blocks[:1]:
                    block.arrays = [mx.zeros_like(x) for x in block.arrays]
        return kept

    monkeypatch.setattr(PrefixCache, "put", put)
    found = failures("qwen3_moe")
    assert {f.check for f in found} == {"prefix cache"}
    assert "is not the one that was put in" in found[0].detail


def test_a_kernel_that_is_one_unit_in_the_last_place_off(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rope.Tables.__call__

    def off(self: rope.Tables, x: mx.array, offset: Any) -> mx.array:
        right = honest(self, x, offset)
        first = mx.arange(right.size).reshape(right.shape) == 0
        return mx.where(first, (right.view(mx.int32) + 1).view(mx.float32), right)

    monkeypatch.setattr(rope.Tables, "__call__", off)
    found = failures("qwen3_moe")
    assert {f.check for f in found} == {"kernels"}
    assert "1 units in the last place" in found[0].detail

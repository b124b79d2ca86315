"""Positions, masks and windows, against their definitions written out: rope by sines and cosines in double precision,
what a row may see by counting. Knows no drafter and runs no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from engine.backend import rope as rotary
from engine.diagnostics.self_test.findings import Finding, Gauge
from engine.diagnostics.self_test.tiny_models import Precision
from engine.drafters.checkpoint.config import Rope
from engine.drafters.nn.attention import Rotary
from engine.kv_cache.full import AppendKV
from engine.kv_cache.masks import Mask
from engine.kv_cache.sliding_window import SLACK, WindowKV
from engine.targets.self_check import limit_of

Keys = AppendKV | WindowKV

ROUNDS = (
    (7, 7), (4, 1), (1, 1), (16, 16), (5, 0), (2, 2), (3, 1), (SLACK, SLACK), (6, 2), (SLACK, 9), (1, 1),
    (SLACK, SLACK), (16, 3), (1, 1),
)  # fmt: skip
"""(width, rows kept) of a sequence alone; past a window of 16, and past its compactions."""
TOGETHER = (
    (3, (3, 1, 0)), (1, (1, 1, 1)), (6, (2, 6, 1)), (16, (16, 3, 9)), (SLACK, (SLACK, 0, 8)), (4, (1, 4, 2)),
    (SLACK, (1, 50, SLACK)), (3, (2, 3, 0)),
)  # fmt: skip
"""(width, rows kept of each) of three sequences of different lengths."""
WINDOWS = (1, 5, 16)


def masks() -> Gauge:
    """Rows see all rows before them and none after, alone and beside sequences of other lengths."""
    gauge = Gauge(0.0)
    _walk(gauge, AppendKV, None, "a full cache")
    for window in WINDOWS:
        _walk(gauge, AppendKV, window, f"a full cache under a window of {window}")
    return gauge


def windows() -> Gauge:
    """A sliding window keeps and shows exactly its last rows, whatever was refused or thrown out before."""
    gauge = Gauge(0.0)
    for window in WINDOWS:
        _walk(gauge, lambda w=window: WindowKV(w), window, f"a window of {window}")
    return gauge


def _walk(gauge: Gauge, make: Callable[[], Keys], window: int | None, name: str) -> None:
    layer = make()
    for number, (width, keep) in enumerate(ROUNDS):
        _one(gauge, layer, window, width, [keep], f"{name}, round {number + 1}")
    rows = [make() for _ in range(3)]
    for row, length in zip(rows, (9, 40, 2), strict=True):
        _one(gauge, row, window, length, [length], f"{name}, prompt of {length}")
    together: Any = rows[0]
    for row in rows[1:]:
        together.extend(row)
    for number, (width, keeps) in enumerate(TOGETHER):
        _one(gauge, together, window, width, keeps, f"{name}, three sequences, round {number + 1}")


def _one(gauge: Gauge, layer: Keys, window: int | None, width: int, keep: Sequence[int], where: str) -> None:
    """One round whose keys carry their positions: each query must see those that the definition says."""
    layer.begin(width, True)
    starts = list(layer.lengths)
    mask = layer.make_mask(width, window_size=window)
    positions = mx.array([[float(n + t) for t in range(width)] for n in starts]).reshape(len(starts), 1, width, 1)
    keys, _ = layer.update_and_fetch(positions, positions)
    layer.commit(keep)
    columns = np.array(keys)[:, 0, :, 0]
    shown = _shown(mask, len(starts), width, columns.shape[1])
    for row, start in enumerate(starts):
        for t in range(width):
            last = start + t
            first = 0 if window is None else max(0, last - window + 1)
            if columns[row][shown[row, t]].tolist() != list(range(first, last + 1)):
                gauge.fail(f"{where}: position {last} does not see {first} to {last}")
                return


def _shown(mask: Mask, rows: int, width: int, columns: int) -> np.ndarray:
    """bool [rows, width, columns] of any form of mask."""
    if mask is None:
        return np.ones((rows, width, columns), dtype=bool)
    if isinstance(mask, str):  # the kernel's own causal mask, aligned to the last column
        causal = np.arange(columns)[None] - (columns - width) <= np.arange(width)[:, None]
        return np.broadcast_to(causal, (rows, width, columns))
    return np.broadcast_to(np.array(mask).reshape(-1, width, columns), (rows, width, columns))


# Positions ------------------------------------------------------------------------------------------------------------

DRAFT_ROPES = (
    Rope(10000.0, 16),
    Rope(10000.0, 16, interleaved=True),
    Rope(1e6, 32, rotated=4),
)
OFFSETS: tuple[int | tuple[int, ...], ...] = (0, 1, 7, 250, 511, 1999, (3, 300), (511, 512))
HEADS, WIDE = 2, 32


def rope(precision: Precision) -> Gauge:
    """Rows are turned by their own positions: every rope of models and drafters, and the positions that caches say."""
    gauge = Gauge(limit_of(precision.dtype, False))
    for name, turn, periods, interleaved in _ropes():
        for offset in OFFSETS:
            starts = (offset,) if isinstance(offset, int) else offset
            for rows in (1, 5, 16):
                x = mx.random.normal((len(starts), HEADS, rows, WIDE), key=mx.random.key(rows)).astype(precision.dtype)
                expected = _turned(np.array(x.astype(mx.float32)), starts, periods, interleaved)
                gauge.compare(turn(x, offset), mx.array(expected), f"{name}, {rows} rows from {offset}")
    _told(gauge)
    return gauge


Turn = Callable[[mx.array, int | tuple[int, ...]], mx.array]


def _ropes() -> Iterator[tuple[str, Turn, Sequence[float], bool]]:
    """(name, function, period of each pair, pairs (2i, 2i + 1)) of ropes as models and drafters call them."""
    from mlx_lm.models.rope_utils import initialize_rope

    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 256}
    for dims, base, interleaved, scaling in (
        (16, 10000.0, False, None),
        (32, 1e6, True, None),
        (32, 10000.0, False, llama3),
    ):
        module: Any = initialize_rope(dims, base, interleaved, scaling, 4096)
        plain = [base ** (2 * i / dims) for i in range(dims // 2)]
        periods = cast("list[float]", module._freqs.tolist()) if scaling else plain
        rotary.share(_Holder(module))
        name = f"a model's {'llama3 ' if scaling else ''}rope over {dims} values"
        yield name, lambda x, at, m=module: m(x, at if isinstance(at, int) else mx.array(at)), periods, interleaved
    for told in DRAFT_ROPES:
        turn = Rotary(told)
        plain = [told.theta ** (2 * i / told.dims) for i in range(told.dims // 2)]
        name = f"a drafter's rope over {told.dims} values"

        def call(x: mx.array, at: int | tuple[int, ...], turn: Rotary = turn) -> mx.array:
            return turn(x, (at,) * x.shape[0] if isinstance(at, int) else at)

        yield name, call, told.periods() or plain, told.interleaved


class _Holder(nn.Module):
    def __init__(self, rope: nn.Module) -> None:
        super().__init__()
        self.rope = rope


def _turned(x: np.ndarray, starts: Sequence[int], periods: Sequence[float], interleaved: bool) -> np.ndarray:
    """The definition, in double precision. x [B, heads, T, dim]; the rest of dim stays."""
    out, half = x.astype(np.float64), len(periods)
    rows = np.arange(x.shape[2])
    angles = (np.array(starts)[:, None] + rows)[:, None, :, None] / np.array(periods)
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    a, b = x[..., first].astype(np.float64), x[..., second].astype(np.float64)
    out[..., first] = a * np.cos(angles) - b * np.sin(angles)
    out[..., second] = a * np.sin(angles) + b * np.cos(angles)
    return out.astype(np.float32)


def _told(gauge: Gauge) -> None:
    """Caches say how many rows each of their sequences holds."""
    for make in (AppendKV, lambda: WindowKV(16)):
        one, two = make(), make()
        rows = mx.zeros((1, 1, 9, 1))
        for layer, keep in ((one, 9), (two, 4)):
            layer.begin(9, True)
            layer.update_and_fetch(rows, rows)
            layer.commit([keep])
        if one.offset != 9 or two.offset != 4:
            gauge.fail(f"a {one.kind} cache of 9 and of 4 rows says {one.offset} and {two.offset}")
        cast("Any", one).extend(two)
        if not mx.array_equal(mx.array(one.offset), mx.array([9, 4])):
            gauge.fail(f"a {one.kind} cache of two sequences of 9 and 4 rows says {one.offset}")


def run(name: str, precision: Precision) -> Finding:
    """One of `rope`, `masks`, `windows`."""
    gauge = rope(precision) if name == "rope" else {"masks": masks, "windows": windows}[name]()
    return gauge.finding(
        name, {"rope": "positions", "masks": "full caches", "windows": "window caches"}[name], precision.name
    )

"""Snapshots whose values are a function of the tokens that they stand for, so that a wrong one is told from a right one
exactly and without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import mlx.core as mx
import numpy as np

from engine.kv_cache.base import LayerSnapshot, Snapshot

WINDOW = 4
FAMILIES: dict[str, tuple[str, ...]] = {
    "qwen3": ("append", "append"),
    "qwen3+kv8": ("packed", "packed"),
    "qwen3_5": ("recurrent", "recurrent", "append"),
    "qwen3_5+kv8": ("recurrent", "packed"),
    "gemma4": ("window", "append"),
    "gemma4+kv8": ("window", "packed"),
    "lfm2": ("conv", "append", "conv"),
    "muse_glimmer": ("window", "window", "append"),
    "nemotron_h": ("recurrent", "append"),
    "recurrent alone": ("recurrent",),
}
"""Layer kinds as the families have them; `packed` are keys and values in 8 bits."""


def running(tokens: Sequence[int]) -> list[int]:
    """A number for each position that everything up to it has a say in, as in a real model's keys and values."""
    return list(accumulate(tokens, lambda total, t: (total * 31 + t + 1) % 9973, initial=0))[1:]


def append(tokens: Sequence[int], layer: int = 0) -> LayerSnapshot:
    n = len(tokens)
    keys = mx.array(np.array(running(tokens), dtype=np.float32) + layer).reshape(1, 1, n, 1)
    values = mx.array(np.stack([np.arange(n), np.array(tokens)], axis=1).astype(np.float32)).reshape(1, 1, n, 2)
    return LayerSnapshot("append", n, (keys, values), keys.nbytes + values.nbytes, 0)


def packed(tokens: Sequence[int], layer: int = 0) -> LayerSnapshot:
    seen = np.array(running(tokens)).reshape(1, 1, -1, 1) + layer
    rows = [mx.array(np.tile(seen, (1, 1, 1, n)).astype(np.uint32)) for n in (2, 3)]
    scales = [mx.array((seen + n).astype(np.float32)) for n in range(4)]
    data = (rows[0], scales[0], scales[1], rows[1], scales[2], scales[3])
    return LayerSnapshot("append", len(tokens), data, sum(x.nbytes for x in data), 0)


def recurrent(tokens: Sequence[int], layer: int = 0) -> LayerSnapshot:
    slot = mx.full((1, 4), float(running(tokens)[-1] + layer))
    return LayerSnapshot("recurrent", len(tokens), (slot, None), slot.nbytes, len(tokens))


def conv(tokens: Sequence[int], layer: int = 0) -> LayerSnapshot:
    slot = mx.array(np.array([0, 0, *running(tokens)][-2:], dtype=np.float32) + layer).reshape(1, 2, 1)
    return LayerSnapshot("conv", len(tokens), (slot,), slot.nbytes, len(tokens))


def window(tokens: Sequence[int], layer: int = 0) -> LayerSnapshot:
    start = max(0, len(tokens) - WINDOW - 2)
    keys = mx.array(np.array(running(tokens)[start:], dtype=np.float32) + layer).reshape(1, 1, -1, 1)
    oldest = 0 if start == 0 else start + WINDOW - 1
    return LayerSnapshot("window", len(tokens), (keys, mx.zeros((1, 1, 0, 1)), start), keys.nbytes, oldest)


MADE = {"append": append, "packed": packed, "recurrent": recurrent, "conv": conv, "window": window}


def snapshot(tokens: Sequence[int], kinds: Sequence[str] = ("append",)) -> Snapshot:
    return Snapshot(len(tokens), tuple(MADE[kind](tokens, i) for i, kind in enumerate(kinds)))


def check(snap: Snapshot, tokens: Sequence[int], kinds: Sequence[str]) -> None:
    """The snapshot, cut to len(tokens), is the state of these tokens."""
    n = len(tokens)
    assert snap.trimmable_from <= n <= snap.length
    assert len(snap.layers) == len(kinds)
    for got, want in zip(snap.layers, snapshot(tokens, kinds).layers, strict=True):
        assert got.kind == want.kind
        if got.kind == "window":
            seen = [np.array(x.data[0])[0, 0, : n - x.data[2], 0].tolist()[-(WINDOW - 1) :] for x in (got, want)]
            assert seen[0] == seen[1]
            continue
        for x, y in zip(got.data, want.data, strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                assert np.array_equal(np.array(x)[:, :, :n] if got.kind == "append" else np.array(x), np.array(y))


@dataclass(frozen=True)
class ToyContext:
    """A drafter's memory: the tokens that it saw."""

    seen: tuple[int, ...]
    trimmable_from: int = 0

    @property
    def length(self) -> int:
        return len(self.seen)

    @property
    def nbytes(self) -> int:
        return 4 * len(self.seen)

"""Snapshots that say which tokens they were made of, so that a test can tell right from wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from engine.kv_cache.base import LayerSnapshot, Snapshot

WINDOW = 4


def append(tokens: Sequence[int], layer: int = 0) -> LayerSnapshot:
    n = len(tokens)
    keys = mx.array(np.array(tokens, dtype=np.float32) + layer).reshape(1, 1, n, 1)
    values = mx.array(np.stack([np.arange(n), np.array(tokens)], axis=1).astype(np.float32)).reshape(1, 1, n, 2)
    return LayerSnapshot("append", n, (keys, values), keys.nbytes + values.nbytes, 0)


def recurrent(tokens: Sequence[int]) -> LayerSnapshot:
    total = 0
    for t in tokens:
        total = (total * 31 + t + 1) % 9973
    slot = mx.full((1, 4), float(total))
    return LayerSnapshot("recurrent", len(tokens), (slot, None), slot.nbytes, len(tokens))


def window(tokens: Sequence[int]) -> LayerSnapshot:
    start = max(0, len(tokens) - WINDOW - 2)
    keys = mx.array(np.array(tokens[start:], dtype=np.float32)).reshape(1, 1, -1, 1)
    oldest = 0 if start == 0 else start + WINDOW - 1
    return LayerSnapshot("window", len(tokens), (keys, mx.zeros((1, 1, 0, 1)), start), keys.nbytes, oldest)


def snapshot(tokens: Sequence[int], kinds: Sequence[str] = ("append",)) -> Snapshot:
    made = {"append": append, "recurrent": recurrent, "window": window}
    layers = [append(tokens, i) if k == "append" else made[k](tokens) for i, k in enumerate(kinds)]
    return Snapshot(len(tokens), tuple(layers))


def check(snap: Snapshot, tokens: Sequence[int], kinds: Sequence[str]) -> None:
    """The snapshot, cut to len(tokens), is the state of these tokens."""
    n = len(tokens)
    assert snap.trimmable_from <= n <= snap.length
    for i, (layer, kind) in enumerate(zip(snap.layers, kinds, strict=True)):
        assert layer.kind == kind
        if kind == "append":
            keys, values = layer.data
            assert np.array(keys)[0, 0, :n, 0].tolist() == [t + i for t in tokens]
            assert np.array(values)[0, 0, :n, 0].tolist() == list(range(n))
        elif kind == "recurrent":
            assert np.array(layer.data[0]).tolist() == np.array(recurrent(tokens).data[0]).tolist()
            assert layer.data[1] is None
        else:
            keys, _, start = layer.data
            got = np.array(keys)[0, 0, : n - start, 0].tolist()
            assert got[-min(WINDOW - 1, n) :] == list(tokens)[-min(WINDOW - 1, n) :]


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

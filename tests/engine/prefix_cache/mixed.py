"""A target whose next token depends on everything that its layers remember, in exact integer arithmetic.

Any mix of layer kinds; a row of keys and values that is missing, stale or from another sequence changes the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
import numpy as np

from engine.kv_cache.base import LayerState, State
from engine.kv_cache.full import AppendKV
from engine.kv_cache.recurrent import ConvState, RecurrentState, WindowTrace
from engine.kv_cache.sliding_window import WindowKV
from engine.targets.base import Body
from tests.fakes import spec

VOCAB = 32
MOD = 997
WINDOW = 8
CONV = 3


class MixedTarget:
    """Layers by name: append, window, recurrent, conv."""

    def __init__(self, *kinds: str, name: str = "mixed") -> None:
        self.kinds = kinds
        self.spec = spec(VOCAB, hidden=VOCAB, layers=len(kinds))
        self.fed = 0
        """Tokens that went through the body."""

    def new_state(self) -> State:
        return State([_layer(k) for k in self.kinds])

    def body(self, ids: mx.array, state: State, taps: Sequence[int] = (), embeddings: mx.array | None = None) -> Body:
        assert state.transaction is not None
        width = ids.shape[1]
        self.fed += int(ids.shape[0]) * width
        tokens = np.array(ids).astype(np.int64)
        mixed = tokens * 31 + 7
        for number, layer in enumerate(state.layers):
            seen = _run(layer, tokens + number, width)
            mixed = mixed * 5 + seen
        hidden = mx.array(np.eye(VOCAB, dtype=np.float32)[mixed % VOCAB] * 8)
        return Body(hidden, mx.concatenate([hidden] * len(taps), axis=-1) if taps else None)

    def logits(self, hidden: mx.array) -> mx.array:
        return hidden

    def raw_logits(self, hidden: mx.array) -> mx.array:
        return hidden

    def raw_embed(self, ids: mx.array) -> mx.array:
        return mx.eye(VOCAB)[ids]


def _layer(kind: str) -> LayerState:
    if kind == "append":
        return AppendKV()
    if kind == "window":
        return WindowKV(WINDOW)
    return RecurrentState(1) if kind == "recurrent" else ConvState(1)


class _Scan:
    """Replays a running hash over the kept rows."""

    def __init__(self, before: np.ndarray, tokens: np.ndarray) -> None:
        self.before, self.tokens = before, tokens

    def rebuild(self, keep: int, rows: mx.array | None) -> mx.array:
        before, tokens = self.before, self.tokens
        if rows is not None:
            before, tokens = before[np.array(rows)], tokens[np.array(rows)]
        return mx.array(_scan(before, tokens[:, :keep])[:, -1:].astype(np.float32))


def _scan(before: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    out, last = [], before[:, 0]
    for t in range(tokens.shape[1]):
        last = (last * 33 + tokens[:, t] + 1) % MOD
        out.append(last)
    return np.stack(out, axis=1)


def _run(layer: LayerState, tokens: np.ndarray, width: int) -> np.ndarray:
    """What each row sees of this layer's memory, as an integer."""
    rows = tokens.shape[0]
    if isinstance(layer, AppendKV | WindowKV):
        lengths = list(layer.lengths)
        fresh = mx.array(tokens.astype(np.float32)).reshape(rows, 1, width, 1)
        place = mx.array([[n + t for t in range(width)] for n in lengths], dtype=mx.float32).reshape(rows, 1, width, 1)
        mask = layer.make_mask(width, return_array=True)
        keys, values = layer.update_and_fetch(fresh, place)
        visible = np.array(keys)[:, 0, :, 0].astype(np.int64) * (np.array(values)[:, 0, :, 0].astype(np.int64) + 3)
        see = _visible(layer, mask, rows, width, visible.shape[1])
        return (see * visible[:, None, :]).sum(-1) % MOD
    assert isinstance(layer, RecurrentState)
    slot = layer.port[0]
    if layer.kind == "conv":
        before = np.zeros((rows, CONV, 1), dtype=np.float32) if slot is None else np.array(slot)
        given = np.concatenate([before, tokens[:, :, None].astype(np.float32)], axis=1)
        layer.record(0, WindowTrace(mx.array(given), CONV))
        layer.port[0] = mx.array(given[:, -CONV:])
        return np.stack([given[:, t : t + CONV + 1, 0].sum(-1) for t in range(width)], axis=1).astype(np.int64)
    before = np.zeros((rows, 1), dtype=np.int64) if slot is None else np.array(slot).astype(np.int64)
    layer.record(0, _Scan(before, tokens))
    out = _scan(before, tokens)
    layer.port[0] = mx.array(out[:, -1:].astype(np.float32))
    return out


def _visible(layer: LayerState, mask: object, rows: int, width: int, columns: int) -> np.ndarray:
    if isinstance(mask, mx.array):
        seen = np.array(mask)
        seen = seen if seen.dtype == bool else seen == 0
        return np.broadcast_to(seen.reshape(-1, *seen.shape[-2:]), (rows, width, columns))
    # No mask: one row that sees all columns, or plainly causal.
    last = np.arange(columns)[None, :] - (columns - width) <= np.arange(width)[:, None]
    return np.broadcast_to(last, (rows, width, columns))


def read(target: MixedTarget, state: State, tokens: Sequence[int]) -> int:
    """Feed tokens; returns the greedy next token."""
    with state.begin(len(tokens), record=False) as transaction:
        body = target.body(mx.array([list(tokens)], dtype=mx.int32), state)
        transaction.commit(len(tokens))
    mx.eval(body.hidden, state.arrays())
    return cast("int", mx.argmax(target.logits(body.hidden)[0, -1]).item())


def greedy(target: MixedTarget, state: State, first: int, count: int) -> list[int]:
    out = [first]
    while len(out) < count:
        out.append(read(target, state, out[-1:]))
    return out

"""Held-out acceptance while training: greedy drafts at every anchor of stored conversations, walked like
a decode.

Exact for greedy answers, whose stored tokens are what the target would have said; the real verify loop has the last
word at export. Knows no optimiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from engine.training.data import blocks
from engine.training.data.blocks import Ints, Store
from engine.training.loop.step import Frozen, whiten
from engine.training.model import model


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a decode of the held-out answers would have done."""

    tokens: int
    rounds: int
    by_position: tuple[float, ...]
    """Share of anchors whose first i + 1 drafts are all right."""

    @property
    def committed(self) -> float:
        """Tokens per round, the target's own included."""
        return self.tokens / max(1, self.rounds)


def chain(
    shape: model.Shape,
    params: model.Params,
    frozen: Frozen,
    vocabulary: mx.array,
    block: model.Block,
    anchor_ids: mx.array,
) -> mx.array:
    """Greedy drafts [S, A, N] in target ids, each fed back into the Markov head."""
    hidden = model.backbone(shape, params, block)
    previous, drafts = anchor_ids, list[mx.array]()
    for i in range(shape.drafts):
        z = hidden[:, :, i]
        if shape.rank:
            z = z + model.markov_rows(params, frozen.embed[previous]) @ params["markov"]["out"].T
        previous = vocabulary[mx.argmax(z @ frozen.head.T, axis=-1)]
        drafts.append(previous)
    return mx.stack(drafts, axis=-1)


def accepted(
    shape: model.Shape, params: model.Params, frozen: Frozen, vocabulary: mx.array, store: Store, i: int
) -> Ints:
    """For each answer token of conversation i as the anchor: how many drafts continue the stored text."""
    span, first = store.span(i), int(store.prompts[i])
    ids = store.ids[span]
    anchors = np.arange(first, len(ids) - 1, dtype=np.int32)
    features = whiten(mx.array(np.asarray(store.taps[span])), frozen.whiten)[None]
    at = mx.array(ids[anchors])[None]
    empty = mx.zeros((1, len(anchors), shape.drafts, 0))
    block = model.Block(features, mx.array(anchors)[None], frozen.embed[at], frozen.embed[shape.mask_id], empty)
    drafts = np.array(chain(shape, params, frozen, vocabulary, block, at))[0]
    wanted = np.full((len(anchors), shape.drafts), -1, np.int64)
    for j in range(shape.drafts):
        tail = ids[anchors[anchors + 1 + j < len(ids)] + 1 + j]
        wanted[: len(tail), j] = tail
    return np.cumprod(drafts == wanted, axis=1).sum(axis=1)


def walk(lengths: Ints) -> tuple[int, int]:
    """(tokens, rounds) of decoding one answer, given how many drafts each anchor gets right."""
    at, rounds = 0, 0
    while at < len(lengths):
        at += int(lengths[at]) + 1
        rounds += 1
    return min(at, len(lengths)), rounds


def acceptance(
    shape: model.Shape, params: model.Params, frozen: Frozen, vocabulary: Ints, store: Store, members: Sequence[int]
) -> Acceptance:
    """Over the given conversations; those answered greedily are the ones to give."""
    tokens = rounds = 0
    counts, total = np.zeros(shape.drafts), 0
    table = mx.array(vocabulary.astype(np.int32))
    for i in members:
        n = accepted(shape, params, frozen, table, store, int(i))
        walked = walk(n)
        tokens, rounds = tokens + walked[0], rounds + walked[1]
        counts += [(n > j).sum() for j in range(shape.drafts)]
        total += len(n)
    return Acceptance(tokens, rounds, tuple(float(c) for c in counts / max(1, total)))


__all__ = ["Acceptance", "acceptance", "accepted", "chain", "blocks", "walk"]

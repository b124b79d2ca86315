"""The feature files read as training blocks: which anchors, what they see, what they should say.

Reads what the features stage wrote; knows no model and computes no gradient. Everything random is a function of
(seed, step), so that a resumed run continues with the batches that an uninterrupted one would have had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Store:
    """Token ids and target features of N conversations, concatenated; memory-mapped."""

    ids: NDArray[np.int32]
    """[tokens]"""
    offsets: Ints
    """[N + 1]"""
    prompts: NDArray[np.int32]
    """[N]: length of the part that is not trained on."""
    temperatures: Floats
    """[N]: of the answers; 0 is greedy."""
    taps: NDArray[np.float16]
    """[tokens, m*H]"""
    last: NDArray[np.float16]
    """[tokens, H], after the final norm."""

    @classmethod
    def open(cls, folder: Path, limit: int | None = None) -> Store:
        with np.load(folder / "index.npz") as stored:
            index = dict(stored)
        tokens = len(index["ids"])
        n = len(index["prompt"]) if limit is None else min(limit, len(index["prompt"]))
        taps = np.memmap(folder / "taps.f16", np.float16, "r").reshape(tokens, -1)
        last = np.memmap(folder / "last.f16", np.float16, "r").reshape(tokens, -1)
        return cls(index["ids"], index["off"][: n + 1], index["prompt"][:n], index["temp"][:n], taps, last)

    def __len__(self) -> int:
        return len(self.prompts)

    def span(self, i: int) -> slice:
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def length(self, i: int) -> int:
        return int(self.offsets[i + 1] - self.offsets[i])

    def answers(self, members: Ints) -> Ints:
        """Positions in the files of every answer token of the members."""
        return np.concatenate([np.arange(s.start + int(self.prompts[i]), s.stop) for i, s in self._spans(members)])

    def inner(self, members: Ints) -> Ints:
        """Positions of every token of the members but the first of each."""
        return np.concatenate([np.arange(s.start + 1, s.stop) for _, s in self._spans(members)])

    def _spans(self, members: Ints) -> list[tuple[int, slice]]:
        return [(i, self.span(i)) for i in (int(m) for m in members)]


def with_questions(store: Store, members: Ints, opening: int) -> Store:
    """The store with everything after the first `opening` tokens of the members taken as answer: for questions that the
    model wrote itself, which are as much its own text."""
    prompts = store.prompts.copy()
    prompts[members] = np.minimum(prompts[members], opening)
    return replace(store, prompts=prompts)


def draft_vocabulary(store: Store, size: int, always: tuple[int, ...] = ()) -> Ints:
    """The `size` most frequent tokens of the answers, `always` among them, ascending."""
    ids, counts = np.unique(store.ids[store.answers(np.arange(len(store)))], return_counts=True)
    order = ids[np.argsort(-counts, kind="stable")]
    ranked = list(dict.fromkeys([*always, *order.tolist()]))
    return np.sort(np.array(ranked[:size], np.int64))


@dataclass(frozen=True, slots=True)
class Teacher:
    """The target's distribution at each token, over the draft vocabulary: its K likeliest tokens, renormalised."""

    ids: NDArray[np.int32]
    """[tokens, K] draft ids, likeliest first: what follows the token at that index."""
    probs: NDArray[np.float16]
    """[tokens, K]"""
    draft_of: NDArray[np.int32]
    """[V]: target id -> draft id, -1 outside."""


Judge = Callable[[Floats], Floats]
"""Hidden rows [n, H] -> logits [n, Vd] over the draft vocabulary."""


def teach(store: Store, judge: Judge, vocabulary: Ints, vocab: int, k: int, temperature: float) -> Teacher:
    """Ask the target's output for every answer token's stored hidden state."""
    end = int(store.offsets[-1])
    ids, probs = np.zeros((end, k), np.int32), np.zeros((end, k), np.float16)
    wanted = np.zeros(end, bool)
    for i in range(len(store)):
        wanted[int(store.offsets[i]) + int(store.prompts[i]) - 1 : int(store.offsets[i + 1])] = True
    rows = np.flatnonzero(wanted)
    for at in range(0, len(rows), 512):
        part = rows[at : at + 512]
        logits = judge(store.last[part].astype(np.float32))
        best = np.argpartition(-logits, k - 1, axis=-1)[:, :k] if k < logits.shape[1] else np.argsort(-logits, -1)
        value = np.take_along_axis(logits, best, -1)
        order = np.argsort(-value, axis=-1)
        best, value = np.take_along_axis(best, order, -1), np.take_along_axis(value, order, -1)
        e = np.exp((value - value[:, :1]) / temperature)
        ids[part], probs[part] = best, e / e.sum(-1, keepdims=True)
    draft_of = np.full(vocab, -1, np.int32)
    draft_of[vocabulary] = np.arange(len(vocabulary), dtype=np.int32)
    return Teacher(ids, probs, draft_of)


def noise(shape: tuple[int, ...], size: float, seed: int, step: int) -> Floats:
    """Gaussian noise for whitened features. Few conversations are learnt by heart without it."""
    return np.random.default_rng([seed, step, 3]).standard_normal(shape, dtype=np.float32) * np.float32(size)


class Batch(NamedTuple):
    """S sequences, A anchors each, N drafts per anchor; padded at the end."""

    sequences: Ints
    features: NDArray[np.float16]
    """[S, T, m*H], raw."""
    anchors: NDArray[np.int32]
    """[S, A]"""
    tokens: NDArray[np.int32]
    """[S, A, N + 1]: the anchor and the tokens that followed it."""
    ids: NDArray[np.int32]
    """[S, A, N, K]"""
    probs: Floats
    labels: NDArray[np.int32]
    """[S, A, N] draft ids."""
    weights: Floats
    """[S, A, N]"""


def choose(store: Store, members: Ints, sequences: int, seed: int, step: int) -> Ints:
    """Sequences for one step: a random one and its neighbours in length, so that little is padding."""
    rng = np.random.default_rng([seed, step, 1])
    lengths = np.array([store.length(int(i)) for i in members]) + rng.uniform(0, 24, len(members))
    order = members[np.argsort(lengths, kind="stable")]
    at = int(rng.integers(0, max(1, len(order) - sequences + 1)))
    return order[at : at + sequences]


def blocks(
    store: Store,
    teacher: Teacher,
    chosen: Ints,
    anchors: int,
    drafts: int,
    *,
    seed: int,
    step: int,
    decay: float = 4.0,
    pad: int = 32,
) -> Batch:
    """Draw anchors in the chosen sequences and lay out what each should predict.

    An anchor is an answer token that another one follows. A row counts while every label up to its own exists and is in
    the draft vocabulary: after a token that cannot be drafted, the block is over anyway.
    """
    rng = np.random.default_rng([seed, step, 2])
    lengths = [store.length(int(i)) for i in chosen]
    width = -(-max(lengths) // pad) * pad
    s, k = len(chosen), teacher.ids.shape[1]
    count = min(anchors, max(n - int(store.prompts[i]) - 1 for n, i in zip(lengths, chosen, strict=True)))
    features = np.zeros((s, width, store.taps.shape[1]), np.float16)
    at, tokens = np.zeros((s, count), np.int32), np.zeros((s, count, drafts + 1), np.int32)
    weights = np.zeros((s, count, drafts), np.float32)
    ids, probs = np.zeros((s, count, drafts, k), np.int32), np.zeros((s, count, drafts, k), np.float32)
    labels = np.zeros((s, count, drafts), np.int32)
    fade = np.exp(-np.arange(drafts, dtype=np.float32) / decay)
    for row, (i, n) in enumerate(zip(chosen, lengths, strict=True)):
        span, first = store.span(int(i)), int(store.prompts[i])
        features[row, :n] = store.taps[span]
        drawn = np.sort(rng.permutation(np.arange(first, n - 1))[:count])
        m = len(drawn)
        position = drawn[:, None] + np.arange(drafts + 1)
        inside = position < n
        clipped = np.minimum(position, n - 1)
        text = store.ids[span][clipped]
        at[row, :m], tokens[row, :m] = drawn, text
        label = teacher.draft_of[text[:, 1:]]
        alive = np.cumprod(inside[:, 1:] & (label >= 0), axis=1).astype(np.float32)
        source = span.start + clipped[:, :-1]
        labels[row, :m], weights[row, :m] = np.maximum(label, 0), alive * fade
        ids[row, :m], probs[row, :m] = teacher.ids[source], teacher.probs[source]
    return Batch(chosen, features, at, tokens, ids, probs, labels, weights)


def whitening(store: Store, members: Ints, width: int, shrink: float = 0.02, samples: int = 20000) -> Floats:
    """[m, H, H]: per tap, the map that makes features near-white, second moments shrunk towards their diagonal mean.

    Residual streams are badly conditioned (root mean squares from 1 to hundreds between dimensions, one mean direction
    that dominates), which Adam cannot undo. Position 0 is left out: attention sinks park enormous values there.
    """
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(store.inner(members))[:samples])
    maps: list[Floats] = []
    for tap in range(store.taps.shape[1] // width):
        x = store.taps[rows, tap * width : (tap + 1) * width].astype(np.float32)
        scale = np.sqrt(np.mean(x * x, axis=0)) + 1e-6
        x = x / scale
        values, vectors = np.linalg.eigh((x.T @ x / len(x)).astype(np.float64))
        root = (vectors / np.sqrt(np.maximum(values, 0.0) + shrink)) @ vectors.T
        maps.append((root / scale[:, None]).astype(np.float32))
    return np.stack(maps)

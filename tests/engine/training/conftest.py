"""A corpus without a model: random features that determine the text, and a table in place of a target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine.sampling.sampler import RowSampler
from engine.training.data import blocks
from engine.training.data.blocks import Store, Teacher
from engine.training.loop import step
from engine.training.model import model, warmstart
from engine.types import Sampling

HIDDEN, VOCAB, DRAFT, TAPS = 32, 40, 24, (1, 3)


@dataclass(frozen=True)
class Bench:
    """Everything that a Trainer wants."""

    store: Store
    teacher: Teacher
    vocabulary: np.ndarray
    frozen: step.Frozen
    members: np.ndarray
    shape: model.Shape
    start: warmstart.Start


def make(sequences: int = 16, length: int = 28, seed: int = 0, **shape: object) -> Bench:
    rng = np.random.default_rng(seed)
    vocabulary = np.sort(rng.permutation(VOCAB)[:DRAFT])
    embed = rng.normal(size=(VOCAB, HIDDEN)).astype(np.float32) * 0.3
    ids = vocabulary[rng.integers(0, DRAFT, sequences * length)].astype(np.int32)
    offsets = np.arange(sequences + 1) * length
    taps = rng.normal(size=(len(ids), len(TAPS) * HIDDEN)) * np.exp(rng.normal(size=len(TAPS) * HIDDEN))
    # The last hidden state says the next token loudly: the target is its own text's greedy author.
    last = embed[np.roll(ids, -1)] * 8.0
    store = Store(
        ids,
        offsets.astype(np.int64),
        np.full(sequences, 6, np.int32),
        np.zeros(sequences, np.float32),
        taps.astype(np.float16),
        last.astype(np.float16),
    )
    members = np.arange(sequences)
    head = embed[vocabulary]
    teacher = blocks.teach(store, lambda rows: rows @ head.T, vocabulary, VOCAB, DRAFT, 1.0)
    maps = blocks.whitening(store, members, HIDDEN)
    frozen = step.Frozen(mx.array(embed), mx.array(head), mx.array(maps))
    settings: dict[str, object] = {
        "hidden": HIDDEN, "vocab": VOCAB, "draft_vocab": DRAFT, "taps": TAPS, "heads": 2, "kv_heads": 2, "head_dim": 16,
        "intermediate": 64, "block": 4, "rank": 8, "mask_id": int(np.setdiff1d(np.arange(VOCAB), vocabulary)[0]),
    }  # fmt: skip
    made = model.Shape(**{**settings, **shape})  # pyright: ignore[reportArgumentType]
    start = warmstart.start(store, members, maps, embed, made.mask_id, samples=4000)
    return Bench(store, teacher, vocabulary, frozen, members, made, start)


@pytest.fixture
def bench() -> Bench:
    return make()


@pytest.fixture(name="make")
def make_fixture():
    return make


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parents[2] / "golden"


@pytest.fixture
def greedy_sampler() -> RowSampler:
    return RowSampler(Sampling(), [1], VOCAB)

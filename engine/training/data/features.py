"""The features stage: what the target thinks of every token of the conversations, in memory-mapped files.

Per token: the taps (residual streams of chosen layers) and the last hidden state after the final norm, in float16. The
files are sized in advance and filled in order; `done` counts finished conversations, so that a killed stage goes on
where it stopped. Knows no drafter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np

from engine.errors import NoSpace, UsageError, human_bytes
from engine.paths import replacing, write_atomically
from engine.targets.base import Target
from engine.training.data.conversations import Conversation

Progress = Callable[[int, int], None]
"""(tokens done, tokens in all)."""

GROUP = 64
"""Conversations between two marks of progress; within a group they are batched by length."""
_LIMIT = 65000.0
"""float16 ends at 65504; attention sinks come near."""


@dataclass(frozen=True, slots=True)
class Size:
    """What the files will take."""

    tokens: int
    bytes: int


def estimate(conversations: Sequence[Conversation], hidden: int, taps: int) -> Size:
    tokens = sum(len(c.prompt_ids) + len(c.response_ids) for c in conversations)
    return Size(tokens, tokens * (taps + 1) * hidden * 2)


def extract(
    target: Target,
    conversations: Sequence[Conversation],
    taps: tuple[int, ...],
    folder: Path,
    *,
    rows: int = 8,
    progress: Progress = lambda _a, _b: None,
) -> None:
    """Fill `folder`, or finish filling it. Conversations are taken in the given order.

    Raises:
        UsageError: the folder holds features of other conversations or taps.
        NoSpace: the disk is too small.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids = [np.array([*c.prompt_ids, *c.response_ids], np.int32) for c in conversations]
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in ids])]).astype(np.int64)
    _index(folder, conversations, ids, offsets, taps)
    hidden, total = target.spec.hidden_size, int(offsets[-1])
    out_taps = _file(folder / "taps.f16", total, len(taps) * hidden)
    out_last = _file(folder / "last.f16", total, hidden)
    mark = folder / "done"
    done = int(mark.read_text()) if mark.exists() else 0
    read = int(offsets[done])
    progress(read, total)
    for first in range(done, len(ids), GROUP):
        group = sorted(range(first, min(first + GROUP, len(ids))), key=lambda i: len(ids[i]))
        for at in range(0, len(group), rows):
            members = group[at : at + rows]
            hidden_rows, tap_rows = _forward(target, [ids[i] for i in members], taps)
            for row, i in enumerate(members):
                span, n = slice(offsets[i], offsets[i + 1]), len(ids[i])
                out_last[span], out_taps[span] = hidden_rows[row, :n], tap_rows[row, :n]
            read += sum(len(ids[i]) for i in members)
            progress(read, total)
        out_taps.flush()
        out_last.flush()
        write_atomically(mark, str(max(group) + 1))


def _forward(target: Target, ids: list[np.ndarray], taps: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """One padded prefill: hidden [B, T, H] and taps [B, T, m*H], float16. Padding is at the end, where a causal model's
    earlier rows cannot see it."""
    width = max(len(x) for x in ids)
    padded = np.zeros((len(ids), width), np.int32)
    for row, x in enumerate(ids):
        padded[row, : len(x)] = x
    state = target.new_state()
    state.select([0] * len(ids))
    with state.begin(width, record=False):
        body = target.body(mx.array(padded), state, taps)
        assert body.taps is not None
        pair = [mx.clip(x.astype(mx.float32), -_LIMIT, _LIMIT).astype(mx.float16) for x in (body.hidden, body.taps)]
        mx.eval(pair)
    return np.array(pair[0]), np.array(pair[1])


def _index(
    folder: Path,
    conversations: Sequence[Conversation],
    ids: list[np.ndarray],
    offsets: np.ndarray,
    taps: tuple[int, ...],
) -> None:
    """Write the index, or check that the one that is there is of the same material."""
    file, flat = folder / "index.npz", np.concatenate(ids)
    if file.exists():
        with np.load(file) as stored:
            old = dict(stored)
        if not (np.array_equal(old["ids"], flat) and tuple(old["taps"].tolist()) == taps):
            raise UsageError(
                f"{folder} holds features of other conversations or layers; choose another folder, or delete it."
            )
        return
    prompts = np.array([len(c.prompt_ids) for c in conversations], np.int32)
    temperatures = np.array([c.temperature for c in conversations], np.float32)
    with replacing(file) as part, part.open("wb") as stream:
        np.savez(stream, ids=flat, off=offsets, prompt=prompts, temp=temperatures, taps=np.array(taps, np.int64))


def _file(path: Path, rows: int, columns: int) -> np.memmap:
    """A file of the full size, opened for writing; what is in it stays."""
    size = rows * columns * 2
    if not path.exists() or path.stat().st_size != size:
        free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
        if free < size:
            raise NoSpace(
                f"The features take {human_bytes(size)} and {human_bytes(free)} are free; train on fewer conversations."
            )
        with path.open("ab") as file:
            file.truncate(size)
    return np.memmap(path, np.float16, "r+", shape=(rows, columns))

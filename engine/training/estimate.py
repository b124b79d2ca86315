"""What a run will take, measured on this machine before it starts: seconds and bytes per stage."""

from __future__ import annotations

import time
from dataclasses import dataclass

import mlx.core as mx

from engine.targets.base import Target
from engine.training.settings import Settings

_PROMPT, _ANSWER = 64, 200
"""Typical lengths of what a small chat model writes, where nothing is there yet to be counted."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of what is still to do."""

    conversations: int
    writing: float
    """Seconds."""
    tokens: int
    reading: float
    """Seconds."""
    feature_bytes: int
    training: float

    @property
    def seconds(self) -> float:
        return self.writing + self.reading + self.training


def estimate(
    target: Target, settings: Settings, taps: int, *, written: int, tokens: int, read: int, trained: float
) -> Estimate:
    """Time two forwards and multiply. Call on the model thread.

    written: conversations that exist; tokens: theirs, or 0 when none do; read: conversations whose features exist;
    trained: seconds of training behind us.
    """
    missing = max(0, settings.conversations - written)
    mean = tokens / written if written else float(_PROMPT + min(_ANSWER, settings.max_tokens))
    total = round(tokens + missing * mean)
    unread = max(0.0, total - read * mean)
    width = 32
    step = _seconds(target, (width, 1))
    prefill = _seconds(target, (2, 128)) / 256
    answers = missing * min(_ANSWER, settings.max_tokens) * (1.0 if settings.prompts else 1.3)
    return Estimate(
        missing,
        answers * step / width,
        total,
        unread * prefill,
        total * (taps + 1) * target.spec.hidden_size * 2,
        max(0.0, settings.budget - trained) if not settings.steps else 0.0,
    )


def _seconds(target: Target, shape: tuple[int, int]) -> float:
    """The better of two forwards on an empty state."""
    best = float("inf")
    for _ in range(2):
        state = target.new_state()
        state.select([0] * shape[0])
        began = time.perf_counter()
        with state.begin(shape[1], record=False):
            body = target.body(mx.zeros(shape, dtype=mx.int32), state)
            mx.eval(target.logits(body.hidden[:, -1:]))
        best = min(best, time.perf_counter() - began)
    return best

"""Whether two ways of decoding said the same, checked: identical ids, or the first difference and how close it was.

Two correct forwards of different widths round differently, so greedy texts may part where two logits are as good as
equal. Such a tie is told from an error by the target itself: it is asked again for the logits of both tokens there.
Must run on the model thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from engine import backend
from engine.decoding.prefill import default_chunk
from engine.sampling.sampler import RowSampler, log_of
from engine.targets.base import Target
from engine.types import Sampling

TIE_FLOAT32 = 0.02
"""Largest logit gap that rounding explains in float32, on logits of ordinary size."""
TIE_HALF = 0.5
"""The same with 16-bit or quantised arithmetic."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of `other` against `reference`."""

    same: bool
    """Identical ids."""
    length: int
    """Tokens compared."""
    position: int | None = None
    """Index of the first difference among the output tokens."""
    tokens: tuple[int, int] | None = None
    """(reference's, other's) there; -1 where one had ended."""
    gap: float | None = None
    """Logit of the reference's token minus that of the other's, by a plain forward."""
    tie: bool = False
    """The gap is within rounding."""

    @property
    def ok(self) -> bool:
        return self.same or self.tie

    def __str__(self) -> str:
        if self.same:
            return f"identical token ids ({self.length})"
        gap = "unknown" if self.gap is None else f"{self.gap:.3g}"
        kind = "a tie within rounding" if self.tie else "NOT a tie: the texts differ"
        return f"first differs at token {self.position}, logit gap {gap}: {kind}"


def tie_limit() -> float:
    """What counts as a tie on this backend."""
    return TIE_FLOAT32 if backend.float32_only() else TIE_HALF


def compare(
    target: Target,
    prompt: Sequence[int],
    reference: Sequence[int],
    other: Sequence[int],
    sampling: Sampling | None = None,
) -> Verdict:
    """Compare outputs, greedy or of one seed. One that is a prefix of the other differs where it ends."""
    shorter = min(len(reference), len(other))
    at = next((i for i in range(shorter) if reference[i] != other[i]), shorter)
    if at == len(reference) == len(other):
        return Verdict(True, at)
    if at == shorter:
        pair = (reference[at] if at < len(reference) else -1, other[at] if at < len(other) else -1)
        return Verdict(False, shorter, at, pair)
    a, b = int(reference[at]), int(other[at])
    scores = next_logits(target, [*prompt, *reference[:at]])
    if sampling is not None and not sampling.greedy:
        # What decided under this seed: the law's logarithm plus the noise of that position.
        sampler = RowSampler(sampling, prompt, target.spec.vocab_size)
        scores = log_of(sampler.probs(scores[None]))[0] + sampler.noise(len(prompt) + at, 1)[0]
    gap = cast("float", (scores[a] - scores[b]).item())
    return Verdict(False, shorter, at, (a, b), gap, abs(gap) <= tie_limit())


def next_logits(target: Target, tokens: Sequence[int]) -> mx.array:
    """Logits [V] float32 after `tokens`, by a cold plain forward."""
    state, chunk = target.new_state(), default_chunk()
    hidden: mx.array | None = None
    for start in range(0, len(tokens), chunk):
        part = list(tokens[start : start + chunk])
        with state.begin(len(part), record=False) as transaction:
            hidden = target.body(mx.array([part], dtype=mx.int32), state).hidden[:, -1:]
            transaction.commit(len(part))
        mx.eval(hidden, state.arrays())
    assert hidden is not None
    return target.logits(hidden)[0, 0].astype(mx.float32)

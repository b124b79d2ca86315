"""What a check found: how far two computations lie apart, how far they may, and where two tokens were as good as equal.

Numbers only; knows no model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from engine.diagnostics.equivalence import TIE_FLOAT32, TIE_HALF
from engine.targets.self_check import apart

__all__ = ["Finding", "Gauge", "Tie", "apart", "tie_limit", "ulps"]


@dataclass(frozen=True, slots=True)
class Tie:
    """Two computations preferred different tokens, whose logits were within rounding of each other."""

    where: str
    margin: float
    """Logit of the reference's token minus that of the other's."""
    limit: float
    """From here on it would be an error."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one subject in one number format."""

    check: str
    subject: str
    """A family, a kernel, a drafter, a law."""
    precision: str
    deviation: float = 0.0
    limit: float = 0.0
    detail: str = ""
    """Where the largest deviation was, or what failed; why, where it was not tried."""
    ties: tuple[Tie, ...] = ()
    tried: bool = True

    @property
    def ok(self) -> bool:
        return not self.tried or self.deviation <= self.limit  # a deviation that is not a number fails


@dataclass(slots=True)
class Gauge:
    """Collects deviations of one check and remembers the worst."""

    limit: float
    deviation: float = 0.0
    detail: str = ""
    ties: list[Tie] = field(default_factory=list[Tie])

    def take(self, deviation: float, where: str) -> None:
        if not deviation <= self.deviation:  # so that what is not a number counts as the worst
            self.deviation, self.detail = deviation, where

    def compare(self, got: mx.array, expected: mx.array, where: str) -> None:
        """Relative root mean square deviation of two arrays."""
        self.take(apart(got, expected), where)

    def fail(self, where: str) -> None:
        """What has no measure: it is wrong."""
        self.take(math.inf, where)

    def tokens(self, got: mx.array, expected: mx.array, dtype: mx.Dtype, where: str) -> None:
        """The best token of each row of logits [T, V]: the same, or a tie that is noted, or an error."""
        got, expected = got.astype(mx.float32), expected.astype(mx.float32)
        mine, best = mx.argmax(got, axis=-1), mx.argmax(expected, axis=-1)
        rows = mx.arange(got.shape[0])
        margins = expected[rows, best] - expected[rows, mine]
        for row, margin in enumerate(_floats(margins)):
            if margin:
                self.tie(f"{where}, row {row}", margin, dtype)

    def tie(self, where: str, margin: float, dtype: mx.Dtype) -> None:
        limit = tie_limit(dtype)
        if abs(margin) <= limit:
            self.ties.append(Tie(where, margin, limit))
        else:
            self.fail(f"{where}: another token, {margin:.3g} logits from a tie (limit {limit:g})")

    def finding(self, check: str, subject: str, precision: str) -> Finding:
        return Finding(check, subject, precision, self.deviation, self.limit, self.detail, tuple(self.ties))


def tie_limit(dtype: mx.Dtype) -> float:
    """Largest difference of two logits that rounding explains."""
    return TIE_FLOAT32 if dtype == mx.float32 else TIE_HALF


def ulps(got: mx.array, expected: mx.array) -> float:
    """Largest difference of two float32 arrays in units in the last place: how many numbers lie between."""
    if got.shape != expected.shape or got.dtype != mx.float32:
        return math.inf
    return float(mx.max(mx.abs(_ordered(got) - _ordered(expected))).item())  # pyright: ignore[reportArgumentType]


def _ordered(x: mx.array) -> mx.array:
    """Floats as integers in the same order, neighbours one apart."""
    bits = mx.contiguous(x).view(mx.int32).astype(mx.int64)
    return mx.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _floats(x: mx.array) -> Sequence[float]:
    return x.tolist()  # pyright: ignore[reportReturnType]

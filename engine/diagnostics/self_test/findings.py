"""What a check found: how far two computations lie apart, how far they may, and where two tokens were as good as equal.

Numbers only; knows no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import mlx.core as mx

from engine import backend
from engine.backend.host_values import floats
from engine.diagnostics.equivalence import TIE_FLOAT32, TIE_HALF
from engine.targets.self_check import deviation


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
    """Where it went wrong first, else where the largest deviation was; why, where it was not tried."""
    ties: tuple[Tie, ...] = ()
    tried: bool = True

    @property
    def ok(self) -> bool:
        return not self.tried or self.deviation <= self.limit


AT_ONCE = 64
"""Comparisons that wait for each other: each evaluation by itself costs more than a small comparison."""


@dataclass(slots=True)
class Gauge:
    """Collects deviations of one check: how large the worst is, and where the first one was that is too large."""

    limit: float
    deviation: float = 0.0
    detail: str = ""
    ties: list[Tie] = field(default_factory=list[Tie])
    _waiting: list[tuple[mx.array, str, mx.Dtype | None]] = field(
        default_factory=list[tuple[mx.array, str, mx.Dtype | None]]
    )
    """Deviations (no number format), and margins of the tokens of each row."""

    def take(self, deviation: float, where: str) -> None:
        deviation = math.inf if math.isnan(deviation) else deviation
        if deviation > self.deviation:
            self.detail = where if self.deviation <= self.limit else self.detail
            self.deviation = deviation

    def compare(self, got: mx.array, expected: mx.array, where: str) -> None:
        """Relative root mean square deviation of two arrays."""
        self._wait(deviation(got, expected), where)

    def same(self, got: mx.array, expected: mx.array, where: str) -> None:
        """No bit may differ."""
        if got.shape == expected.shape:
            self._wait(mx.where(mx.array_equal(got, expected), 0.0, mx.inf), where)
        else:
            self.fail(where)

    def fail(self, where: str) -> None:
        """What has no measure: it is wrong."""
        self.settle()
        self.take(math.inf, where)

    def tokens(self, got: mx.array, expected: mx.array, dtype: mx.Dtype, where: str) -> None:
        """The best token of each row of logits [T, V]: the same, or a tie that is noted, or an error."""
        got, expected = got.astype(mx.float32), expected.astype(mx.float32)
        mine, best = mx.argmax(got, axis=-1), mx.argmax(expected, axis=-1)
        rows = mx.arange(got.shape[0])
        self._wait(expected[rows, best] - expected[rows, mine], where, dtype)

    def tie(self, where: str, margin: float, dtype: mx.Dtype) -> None:
        limit = tie_limit(dtype)
        if abs(margin) <= limit:
            self.ties.append(Tie(where, margin, limit))
        else:
            self.take(math.inf, f"{where}: another token, {margin:.3g} logits from a tie (limit {limit:g})")

    def settle(self) -> None:
        """Compute what waits, in order."""
        waiting, self._waiting = self._waiting, []
        mx.eval([value for value, _, _ in waiting])
        for value, where, dtype in waiting:
            if dtype is None:
                self.take(cast("float", value.item()), where)
                continue
            for row, margin in enumerate(floats(value)):
                if margin:
                    self.tie(f"{where}, row {row}", margin, dtype)

    def finding(self, check: str, subject: str, precision: str) -> Finding:
        self.settle()
        return Finding(check, subject, precision, self.deviation, self.limit, self.detail, tuple(self.ties))

    def _wait(self, value: mx.array, where: str, dtype: mx.Dtype | None = None) -> None:
        self._waiting.append((value, where, dtype))
        if len(self._waiting) >= AT_ONCE:
            self.settle()


def tie_limit(dtype: mx.Dtype) -> float:
    """Largest difference of two logits that rounding explains; a GPU may round float32 products too."""
    return TIE_FLOAT32 if dtype == mx.float32 and backend.is_cpu() else TIE_HALF


def ulps(got: mx.array, expected: mx.array) -> float:
    """Largest difference of two float32 arrays in units in the last place: how many numbers lie between."""
    if got.shape != expected.shape or {got.dtype, expected.dtype} != {mx.float32}:
        return math.inf
    return float(mx.max(mx.abs(_ordered(got) - _ordered(expected))).item())  # pyright: ignore[reportArgumentType]


def _ordered(x: mx.array) -> mx.array:
    """Floats as integers in the same order, neighbours one apart."""
    bits = mx.contiguous(x).view(mx.int32).astype(mx.int64)
    return mx.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

"""How close plain decoding comes to what memory allows: bytes a step against measured bandwidth.

Speculation is told as a multiple of that ceiling, never as utilisation. `bandwidth` runs on the device; the rest is
arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from engine.calibration.summary import CalibrationView
from engine.errors import human_bytes
from engine.targets.base import TargetSpec

PROBE_BYTES = 256 << 20
CACHED_BYTES = 96 << 20
HEALTHY, OVERHEAD = 0.75, 0.5


@dataclass(frozen=True, slots=True)
class Roofline:
    """Facts and a verdict for `doctor` and `calibrate`."""

    bandwidth_gbs: float
    """Measured, streaming one large array."""
    step_bytes: int
    """Weights that one token reads, and its context."""
    ceiling: float
    """Tokens a second if nothing but memory took time."""
    plain: float
    """Measured plain rate."""
    speculative: float
    """Predicted rate of the best drafter; 0 when there is none."""

    @property
    def utilisation(self) -> float:
        """Share of the bandwidth that plain decoding uses."""
        return self.plain / self.ceiling if self.ceiling else 0.0

    @property
    def multiple(self) -> float:
        """Of the ceiling, with drafts."""
        return self.speculative / self.ceiling if self.ceiling else 0.0

    @property
    def verdict(self) -> str:
        """In words; thresholds are of memory-bound machines, so a busy or computing one reads low."""
        if self.utilisation > 1.1:
            small = self.step_bytes < CACHED_BYTES
            return "the weights fit a cache" if small else "others used the memory meanwhile; measure again when idle"
        if self.utilisation >= HEALTHY:
            return "healthy: memory is what limits plain decoding"
        if self.utilisation >= OVERHEAD:
            return "overhead: launches and synchronisation take a part"
        return "compute or structure limits it, not memory"

    def __str__(self) -> str:
        drafts = f", {self.multiple:.2f}x of it with drafts" if self.speculative else ""
        share = f"{100 * self.utilisation:.0f} %"
        return (
            f"memory {self.bandwidth_gbs:.1f} GB/s · {human_bytes(self.step_bytes)} a step · ceiling "
            f"{self.ceiling:.1f} tok/s · plain {self.plain:.1f} ({share}){drafts}: {self.verdict}"
        )


def active_bytes(spec: TargetSpec) -> int:
    """Weight bytes of one token. Of a mixture of experts only the routed share counts, which is most of such a model;
    the rest of its weights makes this a lower bound."""
    if spec.experts is None:
        return spec.weight_bytes
    active, total = spec.experts
    return int(spec.weight_bytes * active / max(1, total))


def step_bytes(spec: TargetSpec, context: int = 512) -> int:
    """What one plain step reads: the active weights and a context of that many tokens."""
    return active_bytes(spec) + spec.kv_bytes_per_token * context


def bandwidth(bytes_: int = PROBE_BYTES, repeats: int = 7) -> float:
    """GB/s of a matrix-vector product over a large matrix, the best of several: it is to be a ceiling. Must run on the
    model thread."""
    columns = 4096
    matrix = mx.ones((bytes_ // 4 // columns, columns), dtype=mx.float32)
    vector = mx.ones((columns,), dtype=mx.float32)
    mx.eval(matrix, vector)
    rates: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        out = matrix @ vector
        mx.eval(out)
        rates.append(matrix.nbytes / (time.perf_counter() - began) / 1e9)
        # The next product waits for this one: launches must not overlap.
        vector = vector * (1.0 + 0.0 * out[0])
    return max(rates)


def roofline(
    spec: TargetSpec, views: Mapping[str, CalibrationView], context: int = 512, gbs: float | None = None
) -> Roofline:
    """From measured curves; measures the bandwidth unless it is given."""
    return over(bandwidth() if gbs is None else gbs, step_bytes(spec, context), views)


def over(gbs: float, step: int, views: Mapping[str, CalibrationView]) -> Roofline:
    """The roofline of a machine with this bandwidth, and a model that reads so much in a step."""
    plain = max((v.plain for v in views.values()), default=0.0)
    best = max((v.predicted for name, v in views.items() if name != "lookup"), default=0.0)
    return Roofline(gbs, step, gbs * 1e9 / step if step else 0.0, plain, best)

"""Which implementation serves an operation of a target, decided per target and per shape, and why.

An alternative is used only after it agreed with the plain-MLX reference beside it and won a race against it on this
machine, on a kind of device that it was run on before it shipped. Nothing is patched onto anybody's classes: a target
asks its dispatch. What was decided goes into the calibration key, since it changes the times.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import mlx.core as mx

from engine import backend

WIN = 0.97
"""An alternative must take less than this share of the reference's time: a tie goes to the reference."""

Op = Callable[..., mx.array]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to compute an operation."""

    name: str
    op: Op
    devices: frozenset[str]
    """Kinds of device ("cpu", "metal", "cuda") that it was run on from end to end; elsewhere it stays off."""
    tolerance: float = 1e-5
    """Largest relative difference from the reference, over the largest magnitude of its output."""


class Trial(NamedTuple):
    """An operation at one shape, the ways to compute it, and operands to try them on; see `OpDispatch.race`."""

    operation: str
    shape: Sequence[int]
    reference: Op
    alternatives: Sequence[Alternative]
    inputs: Callable[[], tuple[mx.array, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What serves one operation at one shape, and why."""

    operation: str
    shape: str
    name: str
    reason: str
    speedup: float = 1.0


class OpDispatch:
    """The choices of one target. Filled at load or by calibration; asked while graphs are built."""

    def __init__(self, device: str | None = None) -> None:
        self.device = device or device_kind()
        self._ops: dict[tuple[str, str], Op] = {}
        self.choices: dict[tuple[str, str], Choice] = {}

    def pick(self, operation: str, shape: Sequence[int], reference: Op) -> Op:
        """The implementation to call; the reference where nothing was chosen."""
        return self._ops.get((operation, _name(shape)), reference)

    def race(
        self,
        operation: str,
        shape: Sequence[int],
        reference: Op,
        alternatives: Sequence[Alternative],
        inputs: Callable[[], tuple[mx.array, ...]],
        repeats: int = 7,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Choice:
        """Check and time the alternatives at one shape, and keep the winner. `inputs` gives fresh operands each time;
        `clock` counts seconds (processor time suits small operations on a CPU that others use too).
        Refusals never raise: a kernel that fails is a reason, not an error."""
        key = (operation, _name(shape))
        best = Choice(*key, "reference", "nothing else applies")
        base = _time(reference, inputs, repeats, clock)
        op = reference
        for other in alternatives:
            refusal = self._refuse(other, reference, inputs)
            if refusal:
                best = best if best.name != "reference" else Choice(*key, "reference", f"{other.name}: {refusal}")
                continue
            taken = _time(other.op, inputs, repeats, clock)
            if taken < WIN * base / best.speedup:
                best, op = Choice(*key, other.name, "checked and faster", base / taken), other.op
            elif best.name == "reference":
                best = Choice(*key, "reference", f"{other.name}: not faster ({base / taken:.2f}x)")
        self.choices[key] = best
        if op is reference:
            self._ops.pop(key, None)
        else:
            self._ops[key] = op
        return best

    def _refuse(self, other: Alternative, reference: Op, inputs: Callable[[], tuple[mx.array, ...]]) -> str:
        if self.device not in other.devices:
            return f"was never run on {self.device}"
        try:
            operands = inputs()
            expected, got = reference(*operands), other.op(*operands)
            if got.shape != expected.shape:
                return f"gives shape {got.shape} instead of {expected.shape}"
            wanted = expected.astype(mx.float32)
            error = mx.max(mx.abs(got.astype(mx.float32) - wanted)) / mx.maximum(mx.max(mx.abs(wanted)), 1e-30)
            mx.eval(error)
        except (RuntimeError, ValueError, TypeError) as failure:
            return f"refused ({' '.join(str(failure).split())[:120]})"
        worst = float(error.item())  # pyright: ignore[reportArgumentType]
        return "" if worst <= other.tolerance else f"differs by {worst:.2g}"

    @property
    def tag(self) -> str:
        """All choices that differ from the reference, for the calibration key."""
        return ",".join(
            f"{c.operation}@{c.shape}={c.name}" for _, c in sorted(self.choices.items()) if c.name != "reference"
        )


def device_kind() -> str:
    """ "cpu", "metal" or "cuda"."""
    if backend.is_cpu():
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def _name(shape: Sequence[int]) -> str:
    return "x".join(str(n) for n in shape)


def _time(op: Op, inputs: Callable[[], tuple[mx.array, ...]], repeats: int, clock: Callable[[], float]) -> float:
    """Median seconds of one call; fresh operands each time, so that no cache flatters."""
    times: list[float] = []
    for _ in range(repeats + 1):
        operands = inputs()
        mx.eval(*operands)
        began = clock()
        mx.eval(op(*operands))
        times.append(clock() - began)
    return statistics.median(times[1:])

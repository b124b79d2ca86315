"""What the calibration panel, `doctor` and the server show: one frozen value, from a calibration and live rounds.

Every rate in it is predicted from measured times; nothing is a guess. Knows no screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.calibration.record import BUSY, Calibration
from engine.decoding.draft_length.acceptance import Timings
from engine.decoding.draft_length.controller import COPY
from engine.decoding.draft_length.cost_model import TYPICAL, constant, derived_cap, knee, rate

_AGAIN = "/calibrate measures again"


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """Numbers for a panel. `measured` False: say "not measured", and nothing else."""

    measured: bool = False
    target: str = ""
    drafter: str = ""
    curve: tuple[tuple[int, float], ...] = ()
    """(width, milliseconds of a verify)."""
    draft: tuple[tuple[int, float], ...] = ()
    """(cap, milliseconds of a draft)."""
    knee: int | None = None
    overhead: float = 0.0
    cap: int = 0
    """What the curves recommend now; 0: plain decoding."""
    predicted: float = 0.0
    """Tokens a second at that cap."""
    plain: float = 0.0
    """Tokens a second of plain decoding, measured."""
    acceptance: float = TYPICAL
    """First-position acceptance behind the prediction."""
    date: str = ""
    """2026-11-29."""
    spread: float = 0.0
    stale: bool = False
    reason: str = ""
    """Why it is stale, or what the numbers suffer from; a sentence."""

    @property
    def rate(self) -> float:
        """The predicted tokens a second."""
        return self.predicted

    @property
    def speedup(self) -> float:
        return self.predicted / self.plain if self.plain else 0.0


def view(
    calibration: Calibration | None,
    timings: Timings | None = None,
    *,
    depth: int = 0,
    rows: int = 1,
    outdated: bool = False,
    threads: int | None = None,
) -> CalibrationView:
    """For a panel. `outdated`: the entry belongs to other software or another machine, and only shows what was.
    `threads`: those of now, where it was measured with another number of them."""
    if calibration is None:
        return CalibrationView()
    costs, prior = calibration.costs, calibration.prior
    if prior is None and calibration.drafter_name == "lookup":
        prior = COPY
    chances = prior.chances if prior else constant(TYPICAL)
    depth = max(depth, costs.base_depth)
    cap = derived_cap(costs, calibration.longest, depth, rows, chances if prior else None)
    stale, reason = _staleness(calibration, timings, outdated, threads)
    return CalibrationView(
        measured=True,
        target=calibration.target_name,
        drafter=calibration.drafter_name,
        curve=costs.verify.points,
        draft=costs.drafter.points,
        knee=knee(costs.verify),
        overhead=costs.overhead,
        cap=cap,
        predicted=rate(costs, chances, cap, depth, rows),
        plain=rate(costs, chances, 0, depth, rows),
        acceptance=prior.first if prior else TYPICAL,
        date=_day(calibration.measured_at),
        spread=calibration.spread,
        stale=stale,
        reason=reason,
    )


def _staleness(
    calibration: Calibration, timings: Timings | None, outdated: bool, threads: int | None
) -> tuple[bool, str]:
    if outdated:
        return True, "measured with other software or on another machine; " + _AGAIN
    if threads is not None:
        then = calibration.identity.threads
        return True, f"measured with {then} BLAS thread{'s' * (then != 1)}, and now there {_are(threads)}; {_AGAIN}"
    if timings is not None and timings.stale:
        off = round(100 * (timings.disagreement - 1.0))
        return True, f"live rounds take {off:+d} % of what was measured; {_AGAIN}"
    if calibration.busy > BUSY:
        return False, "the machine was busy when this was measured"
    if calibration.spread > 0.25:
        return False, "repeated timings differed much"
    return False, ""


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def _day(iso: str) -> str:
    try:
        return datetime.fromisoformat(iso).astimezone().date().isoformat()
    except ValueError:
        return iso[:10]

"""One measurement of one pair on one machine, and what decides whether it may be used again.

Everything that changes the numbers is in the key; what is unknown, partial or from elsewhere is measured again and
never stops a load. Knows no file and no model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from engine.decoding.draft_length.acceptance import Prior
from engine.decoding.draft_length.cost_model import Costs, Curve

SCHEMA = 1
"""Of the record and of how it is measured; a change makes older entries misses."""
BUSY = 1.5
"""Runnable processes a core from which on timings say more about others than about the machine."""
_THREADS = re.compile(r"(?<=[a-z]) (\d+)(?=, [^,]+$)")
"""In `Identity.libraries`: what follows the name of the BLAS, before the system."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the numbers depend on."""

    target: str
    """Fingerprint: configs, quantisation, number format, samples of the weights."""
    drafter: str
    """Fingerprint of the drafter; empty for lookup alone."""
    device: str
    """Chip, core count."""
    libraries: str
    """Versions of what computes."""
    kernels: str = ""
    """Kernel choices that were live."""

    @property
    def key(self) -> str:
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def threads(self) -> int:
        """BLAS threads, which a machine with fewer idle cores at the start has fewer of; 0 where they do not count."""
        found = _THREADS.search(self.libraries)
        return int(found[1]) if found else 0

    def resembles(self, other: Identity) -> bool:
        """Whether only the threads differ: then the numbers are of the right order, and live rounds correct them."""
        mine, theirs = (replace(i, libraries=_THREADS.sub("", i.libraries)) for i in (self, other))
        return mine == theirs and self != other


@dataclass(frozen=True, slots=True)
class Calibration:
    """Curves, acceptance and circumstances."""

    identity: Identity
    target_name: str
    drafter_name: str
    costs: Costs
    longest: int
    """Longest draft that the curves were made for."""
    measured_at: str
    """ISO 8601, UTC."""
    prior: Prior | None = None
    """Acceptance on the built-in text; None where nothing was drafted."""
    spread: float = 0.0
    """Median relative deviation of repeated timings."""
    took_s: float = 0.0
    busy: float = 0.0
    """Load average a core when it began: above 1 others were computing too."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """What could not be measured or used, and why."""
    step_bytes: int = 0
    """Weights and context that one plain step reads, for the roofline; 0 in older entries."""

    @property
    def key(self) -> str:
        return self.identity.key

    def as_json(self) -> dict[str, Any]:
        costs = self.costs
        return {
            "schema": SCHEMA,
            "identity": asdict(self.identity),
            "target": self.target_name,
            "drafter": self.drafter_name,
            "verify": costs.verify.as_dict(),
            "draft": costs.drafter.as_dict(),
            "overhead": costs.overhead,
            "slope": costs.slope.as_dict(8),
            "base_depth": costs.base_depth,
            "batch": {str(b): curve.as_dict() for b, curve in costs.batch.items()},
            "draft_batch": {str(b): curve.as_dict() for b, curve in costs.drafter_batch.items()},
            "longest": self.longest,
            "prior": asdict(self.prior) if self.prior else None,
            "measured_at": self.measured_at,
            "spread": round(self.spread, 4),
            "took_s": round(self.took_s, 2),
            "busy": round(self.busy, 2),
            "refused": dict(self.refused),
            "step_bytes": self.step_bytes,
        }

    @classmethod
    def from_json(cls, value: object) -> Calibration:
        """Read an entry.

        Raises:
            ValueError: anything missing, of another schema, or out of range.
        """
        try:
            entry = cast("dict[str, Any]", value)
            if entry["schema"] != SCHEMA:
                raise ValueError(f"schema {entry['schema']}")
            prior = entry["prior"]
            costs = Costs(
                verify=_curve(entry["verify"]),
                drafter=_curve(entry["draft"]),
                overhead=float(entry["overhead"]),
                slope=_curve(entry["slope"]),
                base_depth=int(entry["base_depth"]),
                batch={int(b): _curve(points) for b, points in entry["batch"].items()},
                drafter_batch={int(b): _curve(points) for b, points in entry.get("draft_batch", {}).items()},
            )
            return cls(
                identity=Identity(**entry["identity"]),
                target_name=str(entry["target"]),
                drafter_name=str(entry["drafter"]),
                costs=costs,
                longest=int(entry["longest"]),
                measured_at=str(entry["measured_at"]),
                prior=Prior(**{k: float(v) for k, v in prior.items()}) if prior else None,
                spread=float(entry["spread"]),
                took_s=float(entry["took_s"]),
                busy=float(entry["busy"]),
                refused={str(k): str(v) for k, v in entry["refused"].items()},
                step_bytes=int(entry.get("step_bytes", 0)),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a calibration entry: {error!r}") from error


def _curve(points: Mapping[str, Any]) -> Curve:
    return Curve.of({int(x): float(y) for x, y in points.items()})

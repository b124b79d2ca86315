"""The self-test's outcome as one object, and as a table that can be attached to a report: no folder, user or host is in
it. Knows no check.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine import backend
from engine.backend.kernels import device_kind
from engine.calibration.calibrator import device
from engine.diagnostics.self_test.findings import Finding
from engine.errors import human_bytes

_PATH = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?(?:[\\/][^\s'\",:;()]+)+")


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one run, and what they were found on."""

    facts: dict[str, str]
    findings: tuple[Finding, ...]
    precisions: tuple[str, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())

    @property
    def failures(self) -> list[Finding]:
        return [f for f in self.findings if not f.ok]

    @property
    def ok(self) -> bool:
        return bool(self.findings) and not self.failures

    def as_dict(self) -> dict[str, Any]:
        """For `--json`. What has no measure is null."""
        return {
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "facts": self.facts,
            "notes": list(self.notes),
            "findings": [_as_dict(f) for f in self.findings],
        }

    def text(self) -> str:
        """Facts, table, ties, failures."""
        parts = [
            "dspark-chat self-test",
            *(f"  {name:<10}{value}" for name, value in self.facts.items()),
            "",
            *_table(self.findings, self.precisions),
            *_section("As good as equal (both tokens are right):", self._ties()),
            *_section("Not tried here:", self._untried()),
            *_section("Notes:", self.notes),
            *_section("WRONG:", [_sentence(f) for f in self.failures]),
            "",
            self._verdict(),
        ]
        return "\n".join(parts)

    def _ties(self) -> list[str]:
        return [
            f"{f.check}, {f.subject}, {f.precision}, {tie.where}: {abs(tie.margin):.2g} apart (limit {tie.limit:g})"
            for f in self.findings
            for tie in f.ties
        ]

    def _untried(self) -> list[str]:
        """One line a reason, with the subjects that it holds for."""
        groups: dict[str, dict[str, None]] = {}
        for f in self.findings:
            if not f.tried:
                groups.setdefault(f.detail, {})[f"{f.subject} in {f.precision}"] = None
        return [f"{', '.join(names)}: {without_paths(why)}" for why, names in groups.items()]

    def _verdict(self) -> str:
        tried = sum(f.tried for f in self.findings)
        if self.ok:
            return f"All {tried} checks passed in {self.seconds:.0f} s."
        failed = f"{len(self.failures)} of {tried} checks FAILED in {self.seconds:.0f} s."
        return f"{failed} Attach this text to a report: it names no folder, no user and no host."


def facts(version: str) -> dict[str, str]:
    """Versions, backend and device."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    def installed(name: str) -> str:
        try:
            return of(name)
        except PackageNotFoundError:
            return "missing"

    told = backend.report()
    return {
        "version": version,
        "backend": device_kind(),
        "device": device(),
        "memory": human_bytes(told.memory_bytes),
        "mlx": f"{told.mlx}, mlx-lm {installed('mlx-lm')}",
        "system": f"{told.system} {platform.release()}, Python {told.python}",
        "compute": f"{told.compute}, BLAS {told.blas} with {told.threads} threads, {told.cores} cores",
        "variables": " ".join(f"{name}={without_paths(os.environ[name])}" for name in _told_variables()) or "none",
    }


def _told_variables() -> list[str]:
    return sorted(n for n in os.environ if n.startswith(("MLX_", "DSPARK_BLAS", "DSPARK_THREADS", "OMP_NUM")))


def without_paths(text: str) -> str:
    """A text that can be shown to others: of paths, only the last part."""
    return _PATH.sub(lambda found: re.split(r"[\\/]", found.group())[-1], text)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _sentence(f: Finding) -> str:
    measured = "" if math.isinf(f.deviation) else f" (deviation {f.deviation:.2g}, limit {f.limit:.2g})"
    return f"{f.check}, {f.subject}, {f.precision}: {without_paths(f.detail) or 'differs'}{measured}"


def _as_dict(f: Finding) -> dict[str, Any]:
    made = asdict(f) | {"ok": f.ok, "detail": without_paths(f.detail)}
    return made | {"deviation": f.deviation if math.isfinite(f.deviation) else None}


def _table(findings: Sequence[Finding], precisions: Sequence[str]) -> list[str]:
    checks = list(dict.fromkeys(f.check for f in findings))
    rows = [["", *precisions]]
    for check in checks:
        cells = [_cell([f for f in findings if f.check == check and f.precision == name]) for name in precisions]
        rows.append([check, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(findings: Sequence[Finding]) -> str:
    """How many passed, the largest deviation, and the ties."""
    tried = [f for f in findings if f.tried]
    if not tried:
        return "-"
    wrong = sum(not f.ok for f in tried)
    if wrong:
        return f"{wrong} of {len(tried)} WRONG"
    worst = max((f.deviation for f in tried if f.limit < 1.0 and not f.detail.startswith("p =")), default=0.0)
    ties = sum(len(f.ties) for f in tried)
    measured = f" {worst:.0e}" if worst else ""
    return f"{len(tried)} ok{measured}" + (f", {ties} tie{'s' * (ties > 1)}" if ties else "")

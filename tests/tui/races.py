"""Races made by hand: arms with texts, clocks and verdicts."""

from __future__ import annotations

from itertools import accumulate

from engine.diagnostics.equivalence import Verdict
from engine.diagnostics.race import Arm, RaceResult
from engine.types import Round, Source, Tokens
from tests.tui.fakes import script

SAID = "Speculative decoding lets a small model propose several tokens, which the large one checks in a single pass. "


def arm(
    drafter: str, text: str = SAID, *, ms: float = 50.0, source: Source = Source.DRAFT, verdict: Verdict | None = None
) -> Arm:
    events = script(text, source=source, ms=ms)
    rounds = tuple(e for e in events if isinstance(e, Round))
    pieces = tuple(p for e in events if isinstance(e, Tokens) for p in e.pieces)
    ends = tuple(accumulate([0.0, *(r.ms for r in rounds[1:])]))
    return Arm(f"{drafter}(≤7), cap auto", drafter, "auto", rounds, ends, text, 200.0, verdict, pieces)


def race(*, second: Verdict | None = None, arms: int = 3) -> RaceResult:
    same = Verdict(True, 28)
    made = [
        arm("none", ms=120.0),
        arm("dspark", ms=60.0, verdict=second or same),
        arm("lookup", ms=80.0, source=Source.LOOKUP, verdict=same),
        arm("dflash", ms=40.0, verdict=same),
    ]
    return RaceResult(tuple(made[:arms]))


TIE = Verdict(False, 28, 18, (5, 9), 0.0042, tie=True)
LIE = Verdict(False, 28, 3, (5, 9), 2.31)

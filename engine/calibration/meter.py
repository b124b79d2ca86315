"""Timings by point until a budget is spent, and what every measurement shares: runs, ids, curves from medians."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

from engine.calibration.controlled_run import Run
from engine.chat.tokenizer import Tokenizer
from engine.decoding.draft_length.cost_model import Curve
from engine.decoding.loop import Loop
from engine.drafters.chain import Chain
from engine.errors import Cancelled
from engine.types import Request

Progress = Callable[[str, float], None]

REPEATS = (3, 9)


class Meter:
    """Collects timings by point until a budget is spent."""

    def __init__(self, budget_s: float, progress: Progress | None, stop: Callable[[], bool] | None) -> None:
        self._began = time.monotonic()
        self.budget_s = budget_s
        self._progress = progress
        self._stop = stop
        self.samples: dict[tuple[str, int], list[float]] = {}

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    def left(self, share: float) -> bool:
        """Whether less than this share of the budget is spent."""
        return self.spent_s < share * self.budget_s

    def say(self, what: str, done: float) -> None:
        """Report, and end here when asked to.

        Raises:
            Cancelled: the user lost patience.
        """
        if self._stop is not None and self._stop():
            raise Cancelled("The measurement was stopped; nothing was kept.")
        if self._progress is not None:
            self._progress(what, min(1.0, done))

    def add(self, curve: str, point: int, ms: float) -> None:
        self.samples.setdefault((curve, point), []).append(ms)

    def curve(self, name: str) -> dict[int, float]:
        return {point: statistics.median(v) for (curve, point), v in self.samples.items() if curve == name}

    def spread(self, name: str) -> float:
        """Median over points of the median relative deviation."""
        spreads: list[float] = []
        for (curve, _), values in self.samples.items():
            middle = statistics.median(values)
            if curve == name and middle > 0:
                spreads.append(statistics.median(abs(v - middle) for v in values) / middle)
        return statistics.median(spreads) if spreads else 0.0


def open_run(loop: Loop, tokenizer: Tokenizer, chain: Chain, prompt: Sequence[int], filler: Sequence[int] = ()) -> Run:
    request = Request(tuple(prompt), max_tokens=4096, stop_ids=frozenset())
    return Run(loop, tokenizer, chain, request, filler=filler)


def varied_ids(prompt: Sequence[int], vocab: int, count: int) -> list[int]:
    """Ids of real text and of anywhere in the vocabulary, mixed; the same ones on every run."""
    dice = random.Random(20)
    return [dice.choice(prompt) if dice.random() < 0.5 else dice.randrange(vocab) for _ in range(count)]


def rising(points: dict[int, float], *, flat: bool) -> Curve:
    """Medians as a curve that never falls: a wider forward is not cheaper, a dip is noise (pool adjacent violators).
    `flat`: one price for all lengths."""
    if not points:
        return Curve.of({1: 0.0})
    if flat:
        return Curve.of({1: statistics.median(points.values())})
    blocks: list[list[float]] = []
    for value in (points[x] for x in sorted(points)):
        blocks.append([value])
        while len(blocks) > 1 and statistics.mean(blocks[-2]) > statistics.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    values = [statistics.mean(block) for block in blocks for _ in block]
    return Curve.of(dict(zip(sorted(points), values, strict=True)))

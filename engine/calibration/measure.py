"""Times one loaded pair on this machine, through the loop that users run.

A verify is timed as a round whose drafts cost nothing, a draft as what a real round takes more than that one right
before it, so that load which comes and goes hits both. Ids vary, since mixtures of experts route degenerate text to the
same few experts. Every round waits for the one before: independent launches would overlap and flatter. Must run on the
model thread.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.calibration.controlled_run import Run, Scripted
from engine.chat.tokenizer import Tokenizer
from engine.decoding.batch import Batch
from engine.decoding.draft_length.acceptance import Acceptance, Prior
from engine.decoding.draft_length.cost_model import Costs, Curve
from engine.decoding.loop import Loop
from engine.drafters.base import Drafter
from engine.drafters.chain import Chain
from engine.errors import Cancelled
from engine.types import Request

Progress = Callable[[str, float], None]

SPARSE_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 17, 33)
SPARSE_CAPS = (1, 2, 4)
BATCH_WIDTHS = (1, 2, 4, 8)
BATCH_TEXT = 16
SLOW_MS = 60.0
"""Above this a row costs so much that only some widths are measured and the others interpolated."""
REPEATS = (3, 9)
DEEP = 8192
"""Depth at which the slope is taken, if the context window reaches that far."""


@dataclass(slots=True)
class Measured:
    """What came out."""

    verify: Curve
    drafts: dict[str, Curve]
    priors: dict[str, Prior]
    slope: Curve
    batch: dict[int, Curve]
    draft_batch: dict[str, dict[int, Curve]]
    base_depth: int
    spread: float
    took_s: float = 0.0
    refused: dict[str, str] = field(default_factory=dict[str, str])

    def costs(self, drafter: str) -> Costs:
        """Curves of one drafter; of lookup when it is unknown."""
        return Costs(
            self.verify,
            self.drafts.get(drafter) or Curve.of({1: 0.0}),
            slope=self.slope,
            base_depth=self.base_depth,
            batch=self.batch,
            drafter_batch=self.draft_batch.get(drafter, {}),
        )


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


def measure(
    loop: Loop,
    tokenizer: Tokenizer,
    drafters: Sequence[Drafter[Any]],
    prompt: Sequence[int],
    *,
    budget_s: float = 10.0,
    most_rows: int = 1,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Measured:
    """Curves of the loaded target with these learned drafters. `prompt` is real text that ends in a question;
    `most_rows` is how many sequences may decode together.

    Raises:
        Cancelled: `stop` said so.
    """
    meter = Meter(budget_s, progress, stop)
    refused: dict[str, str] = {}
    taps = tuple(sorted({t for d in drafters for t in d.taps}))
    scripted = Scripted(_varied(prompt, loop.target.spec.vocab_size, 997), taps)
    verify = _open(loop, tokenizer, Chain("scripted", (scripted,)), prompt)
    runs = {d.name: _open(loop, tokenizer, Chain(d.name, (d,)), prompt) for d in drafters}
    meter.say("measuring", 0.02)
    verify.step(0)
    slow = verify.step(0).ms > SLOW_MS
    base = verify.depth
    believed = {d.name: Acceptance() for d in drafters}
    with _uncut(drafters):
        _repeat(meter, verify, runs, believed, drafters, slow)
        batch = _batches(meter, Crowd(loop, tokenizer, prompt), scripted, drafters, most_rows, refused)
    slope = _slope(meter, loop, tokenizer, scripted, prompt, verify.depth - base, refused)
    drafts: dict[str, Curve] = {}
    for drafter in drafters:
        drafts[drafter.name] = _rising(meter.curve(drafter.name), flat=bool(getattr(drafter, "full_block", False)))
    meter.say("measured", 1.0)
    return Measured(
        verify=_rising(meter.curve("verify"), flat=False),
        drafts=drafts,
        priors={name: _prior(a) for name, a in believed.items()},
        slope=slope,
        batch=batch,
        draft_batch={
            d.name: {b: curve for b in batch if (curve := _drafts_of(meter, d, b)) is not None} for d in drafters
        },
        base_depth=base,
        spread=meter.spread("verify"),
        took_s=meter.spent_s,
        refused=refused,
    )


@contextmanager
def _uncut(drafters: Sequence[Drafter[Any]]) -> Generator[None]:
    """Drafts as long as asked for: one that its confidence head shortens would be timed at a width it did not have."""
    kept = [(d, name, getattr(d, name)) for d in drafters for name in ("costs", "threshold") if hasattr(d, name)]
    try:
        for drafter, name, _ in kept:
            setattr(drafter, name, None if name == "costs" else 0.0)
        yield
    finally:
        for drafter, name, value in kept:
            setattr(drafter, name, value)


def _repeat(
    meter: Meter,
    verify: Run,
    runs: dict[str, Run],
    believed: dict[str, Acceptance],
    drafters: Sequence[Drafter[Any]],
    slow: bool,
) -> None:
    longest = max((d.max_draft for d in drafters), default=0)
    widths = set(SPARSE_WIDTHS) if slow else {*range(1, max(9, longest + 2)), 12, 17, 25, 33}
    caps = {d.name: _caps(d, slow) for d in drafters}
    grid = sorted(widths | {c + 1 for chosen in caps.values() for c in chosen})
    began, slowest = meter.spent_s, 0.0
    for turn in range(REPEATS[1]):
        slowest, began = max(slowest, meter.spent_s - began), meter.spent_s
        if (turn >= REPEATS[0] and began + slowest > 0.7 * meter.budget_s) or (turn and not meter.left(3.0)):
            # A machine that others keep busy gets fewer repetitions, and a larger spread that says so.
            return
        for at, width in enumerate(grid):
            meter.say("measuring", min(0.86, 0.05 + 0.8 * (turn + at / len(grid)) / REPEATS[0]))
            if verify.done:
                return
            verify.step(width - 1)
            alone = verify.last_ms
            meter.add("verify", width, alone)
            for drafter in drafters:
                run = runs[drafter.name]
                if width - 1 not in caps[drafter.name] or run.done:
                    continue
                round_ = run.step(width - 1)
                meter.add(drafter.name, width - 1, max(0.0, run.last_ms - alone))
                believed[drafter.name].observe(
                    len(round_.drafted), round_.accepted, len(round_.tokens) > round_.accepted
                )


def _caps(drafter: Drafter[Any], slow: bool) -> list[int]:
    longest = drafter.max_draft
    if getattr(drafter, "full_block", False):
        return sorted({max(1, longest // 2), longest})
    if not slow:
        return list(range(1, longest + 1))
    return sorted({c for c in SPARSE_CAPS if c <= longest} | {longest})


def _open(loop: Loop, tokenizer: Tokenizer, chain: Chain, prompt: Sequence[int], filler: Sequence[int] = ()) -> Run:
    request = Request(tuple(prompt), max_tokens=4096, stop_ids=frozenset())
    return Run(loop, tokenizer, chain, request, filler=filler)


def _varied(prompt: Sequence[int], vocab: int, count: int) -> list[int]:
    """Ids of real text and of anywhere in the vocabulary, mixed; the same ones on every run."""
    dice = random.Random(20)
    return [dice.choice(prompt) if dice.random() < 0.5 else dice.randrange(vocab) for _ in range(count)]


def _slope(
    meter: Meter,
    loop: Loop,
    tokenizer: Tokenizer,
    scripted: Scripted,
    prompt: Sequence[int],
    grown: int,
    refused: dict[str, str],
) -> Curve:
    """Milliseconds a token of depth, at a narrow and a wide verify, from a memory inflated with random rows."""
    near = len(prompt) + grown // 2
    deep = min(DEEP, loop.target.spec.context - len(prompt) - 256) - len(prompt)
    if deep < 2 * near:
        refused["slope"] = "the context window is too short for depth to matter"
        return Curve.of({1: 0.0})
    try:
        filler = _varied(prompt, loop.target.spec.vocab_size, deep)
        run = _open(loop, tokenizer, Chain("scripted", (scripted,)), prompt, filler)
        at_base = meter.curve("verify")
        run.step(0)
        for turn in range(REPEATS[0]):
            meter.say("measuring depth", 0.88 + 0.04 * turn)
            for width in (1, 8):
                run.step(width - 1)
                meter.add("deep", width, run.last_ms)
        points = {w: max(0.0, ms - at_base[w]) / deep for w, ms in meter.curve("deep").items()}
        return Curve.of(points)
    except Cancelled:
        raise
    except Exception as error:  # noqa: BLE001  a missing slope must not cost the rest
        refused["slope"] = f"depth could not be measured ({type(error).__name__}: {error})"
        return Curve.of({1: 0.0})


@dataclass(frozen=True, slots=True)
class Crowd:
    """Sequences that decode together for a measurement."""

    loop: Loop
    tokenizer: Tokenizer
    prompt: Sequence[int]

    def of(self, part: Drafter[Any], size: int) -> tuple[Batch, list[Run]]:
        # Each with a text of its own: sequences that say the same would wake the same experts, too.
        texts = _varied(self.prompt, self.loop.target.spec.vocab_size, size * BATCH_TEXT)
        runs = [
            _open(self.loop, self.tokenizer, Chain(part.name, (part,)), texts[at : at + BATCH_TEXT])
            for at in range(0, len(texts), BATCH_TEXT)
        ]
        batch = Batch()
        for run in runs:
            assert run.batch.state is not None
            batch.join(run.sequence, run.batch.state)
        return batch, runs

    def step(self, batch: Batch, runs: Sequence[Run], cap: int) -> float:
        """Milliseconds of one round of all with `cap` drafts each."""
        for run in runs:
            run.dial(cap)
        began = time.perf_counter()
        self.loop.step(batch)
        return (time.perf_counter() - began) * 1e3


def _batches(
    meter: Meter,
    crowd: Crowd,
    scripted: Scripted,
    drafters: Sequence[Drafter[Any]],
    most: int,
    refused: dict[str, str],
) -> dict[int, Curve]:
    """Verify curves of several sequences in one forward, for 2, 4, 8 … and the most there may be; and what drafting for
    as many at once takes, see `_drafts_of`."""
    out: dict[int, Curve] = {}
    together = [d for d in drafters if hasattr(d, "propose_rows")]
    for size in sorted({2**i for i in range(1, most.bit_length()) if 2**i <= most} | ({most} if most > 1 else set())):
        try:
            batch, runs = crowd.of(scripted, size)
            for turn in range(REPEATS[0] + 1):
                meter.say(f"measuring {size} at once", 0.87)
                for width in BATCH_WIDTHS:
                    ms = crowd.step(batch, runs, width - 1)
                    if turn:
                        meter.add(f"batch {size}", width, ms)
            out[size] = _rising(meter.curve(f"batch {size}"), flat=False)
            for drafter in together:
                _draft_together(meter, crowd, (batch, runs), drafter, size, refused)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001  a grid with a hole serves, see Costs.verify_ms
            refused[f"batch {size}"] = f"could not be measured ({type(error).__name__}: {error})"
    return out


def _draft_together(
    meter: Meter,
    crowd: Crowd,
    verify: tuple[Batch, list[Run]],
    drafter: Drafter[Any],
    size: int,
    refused: dict[str, str],
) -> None:
    """What a round of a crowd takes more where it drafts than where drafts are free, one right after the other."""
    if not meter.left(2.0):
        refused[f"drafts of {drafter.name} for {size} at once"] = "the time for measuring was up"
        return
    batch, runs = crowd.of(drafter, size)
    caps = {drafter.max_draft} if getattr(drafter, "full_block", False) else {1, drafter.max_draft}
    for turn in range(REPEATS[0]):
        meter.say(f"measuring {size} at once", 0.87)
        for cap in sorted(caps):
            alone, drafting = crowd.step(*verify, cap), crowd.step(batch, runs, cap)
            if turn:
                meter.add(f"{drafter.name} {size}", cap, max(0.0, drafting - alone))


def _drafts_of(meter: Meter, drafter: Drafter[Any], size: int) -> Curve | None:
    points = meter.curve(f"{drafter.name} {size}")
    return _rising(points, flat=bool(getattr(drafter, "full_block", False))) if points else None


def _rising(points: dict[int, float], *, flat: bool) -> Curve:
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


def _prior(believed: Acceptance) -> Prior:
    first, decay = believed.fit()
    # One text of a few rounds: enough to start from, too little to hold out against what a conversation shows.
    return Prior(first, decay, strength=min(6.0, 2.0 + believed.rounds / 4))

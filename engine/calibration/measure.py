"""Times one loaded pair on this machine, through the loop that users run.

A verify is timed as a round whose drafts cost nothing, a draft as what a real round takes more than that one right
before it, so that load which comes and goes hits both. Ids vary, since mixtures of experts route degenerate text to the
same few experts. Every round waits for the one before: independent launches would overlap and flatter. Must run on the
model thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.calibration.controlled_run import Run, Scripted
from engine.calibration.measure_batches import Crowd, drafts_of, measure_batches
from engine.calibration.meter import REPEATS, Meter, Progress, open_run, rising, varied_ids
from engine.chat.tokenizer import Tokenizer
from engine.decoding.draft_length.acceptance import Acceptance, Prior
from engine.decoding.draft_length.cost_model import Costs, Curve
from engine.decoding.loop import Loop
from engine.drafters.base import Drafter
from engine.drafters.chain import Chain
from engine.errors import Cancelled

SPARSE_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 17, 33)
SPARSE_CAPS = (1, 2, 4)
SLOW_MS = 60.0
"""Above this a row costs so much that only some widths are measured and the others interpolated."""
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
    scripted = Scripted(varied_ids(prompt, loop.target.spec.vocab_size, 997), taps)
    verify = open_run(loop, tokenizer, Chain("scripted", (scripted,)), prompt)
    runs = {d.name: open_run(loop, tokenizer, Chain(d.name, (d,)), prompt) for d in drafters}
    meter.say("measuring", 0.02)
    verify.step(0)
    slow = verify.step(0).ms > SLOW_MS
    base = verify.depth
    believed = {d.name: Acceptance() for d in drafters}
    with _uncut(drafters):
        _repeat(meter, verify, runs, believed, drafters, slow)
        batch = measure_batches(meter, Crowd(loop, tokenizer, prompt), scripted, drafters, most_rows, refused)
    slope = _slope(meter, loop, tokenizer, scripted, prompt, verify.depth - base, refused)
    drafts: dict[str, Curve] = {}
    for drafter in drafters:
        drafts[drafter.name] = rising(meter.curve(drafter.name), flat=bool(getattr(drafter, "full_block", False)))
    meter.say("measured", 1.0)
    return Measured(
        verify=rising(meter.curve("verify"), flat=False),
        drafts=drafts,
        priors={name: _prior(a) for name, a in believed.items()},
        slope=slope,
        batch=batch,
        draft_batch={
            d.name: {b: curve for b in batch if (curve := drafts_of(meter, d, b)) is not None} for d in drafters
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
        filler = varied_ids(prompt, loop.target.spec.vocab_size, deep)
        run = open_run(loop, tokenizer, Chain("scripted", (scripted,)), prompt, filler)
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


def _prior(believed: Acceptance) -> Prior:
    first, decay = believed.fit()
    # One text of a few rounds: enough to start from, too little to hold out against what a conversation shows.
    return Prior(first, decay, strength=min(6.0, 2.0 + believed.rounds / 4))

"""Is a drafter read the way it was trained? Acceptance under the readings that files are known to get wrong.

A wrong row, tap or rope changes no text, only speed, so nothing else would tell. The target answers a few prompts by
plain decoding once; every reading of the drafter is then scored against those answers. Reports, and never switches: the
file's own answer stays in force.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any, Literal

import mlx.core as mx

from engine.calibration.controlled_run import Positions, Run
from engine.chat.tokenizer import Tokenizer
from engine.decoding.loop import Loop, columns
from engine.drafters.base import Context
from engine.drafters.chain import Chain
from engine.drafters.checkpoint import Checkpoint
from engine.drafters.checkpoint.config import DrafterConfig, LayerRule
from engine.drafters.load import build
from engine.errors import DrafterRefused
from engine.sampling.sampler import RowSampler
from engine.targets.base import Target
from engine.types import Proposal, Request, Sampling, Source

PROMPTS = (
    "Explain in two sentences why the sky is blue.",
    "Write a Python function that merges two sorted lists.",
    "A train travels 60 km in 45 minutes. What is its average speed in km/h?",
)
MARGIN = 0.03
"""How much better, as a share, another reading must do before the file's own is called wrong."""
ERRORS = 3.0
"""And by how many standard errors of the paired difference. Places next to each other rise and fall together, so two
would cry wolf."""

Axis = Literal["slot", "taps", "rope", "mask"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a drafter's file."""

    start: int
    """First block row that predicts."""
    shift: int
    """Added to every tap id."""
    interleaved: bool
    causal: bool | None
    """None: as the layers say."""

    def apply(self, config: DrafterConfig) -> DrafterConfig:
        rules = config.layers
        if self.causal is not None:
            rules = tuple(LayerRule(rule.window, self.causal) for rule in rules)
        return replace(
            config,
            logits_start=self.start,
            taps=tuple(t + self.shift for t in config.taps),
            rope=replace(config.rope, interleaved=self.interleaved),
            layers=rules,
        )


@dataclass(frozen=True, slots=True)
class Score:
    """How a reading did."""

    reading: Reading
    counts: tuple[int, ...]
    """For each token of the answers: what a round at its place would commit. The same places for every reading."""

    @property
    def committed(self) -> float:
        """Mean tokens a round: accepted drafts and the target's own."""
        return statistics.fmean(self.counts) if self.counts else 0.0

    @property
    def first(self) -> float:
        """Share of places whose first draft is right."""
        return sum(c > 1 for c in self.counts) / max(1, len(self.counts))

    def clearly_better(self, other: Score) -> bool:
        gain, error = self.gain_over(other)
        return gain > max(MARGIN * other.committed, ERRORS * error)

    def gain_over(self, other: Score) -> tuple[float, float]:
        """Mean and standard error of the difference, place by place."""
        pairs = [a - b for a, b in zip(self.counts, other.counts, strict=False)]
        if len(pairs) < 2:
            return 0.0, math.inf
        return statistics.fmean(pairs), statistics.stdev(pairs) / math.sqrt(len(pairs))


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All scores, the file's own first."""

    scores: tuple[Score, ...]
    best: Score
    """The file's own, unless another is clearly better."""
    notes: tuple[str, ...] = ()

    @property
    def own(self) -> Score:
        return self.scores[0]

    @property
    def right(self) -> bool:
        """Whether no other reading is clearly better than the file's own."""
        return self.best is self.own

    @property
    def verdict(self) -> str:
        own, best = self.own, self.best
        if self.right:
            return f"No reading is clearly better than the file's own: {own.committed:.2f} tokens a round."
        return (
            f"The file says {describe(own.reading)} ({own.committed:.2f} tokens a round), but {describe(best.reading)} "
            f"does better ({best.committed:.2f}); tell the drafter's author, or use another file."
        )


def describe(reading: Reading) -> str:
    taps = "taps as listed" if not reading.shift else f"taps {reading.shift:+d}"
    rope = "interleaved rope" if reading.interleaved else "split rope"
    mask = {None: "masks as listed", True: "causal block", False: "bidirectional block"}[reading.causal]
    return f"slot {reading.start}, {taps}, {rope}, {mask}"


class Recorder:
    """A drafter that never proposes and keeps every tap that it is shown."""

    name = "recorder"
    source = Source.DRAFT
    max_draft = 0

    def __init__(self, taps: tuple[int, ...]) -> None:
        self.taps = taps
        self.seen: list[mx.array] = []

    def new_context(self) -> Positions:
        return Positions()

    def context_bytes(self, length: int) -> int:
        return 0

    def observe(self, context: Context, taps: mx.array | None, start: int, ids: Seq[int]) -> None:
        assert taps is not None
        assert isinstance(context, Positions)
        context.length = start + len(ids)
        self.seen.append(taps)

    def silent(self, context: Context, pending: int) -> bool:
        return False

    def propose(self, context: Context, pending: int, k: int, sampler: RowSampler) -> Proposal:
        raise AssertionError("a recorder is never asked")


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt and its plain greedy continuation, with the taps of all but the last token."""

    tokens: tuple[int, ...]
    prompt: int
    taps: mx.array
    layers: tuple[int, ...]
    truth: tuple[int, ...] = ()
    """What the target says after each token, for a text that it did not write itself."""
    every: int = 1
    """One place in so many is looked at."""


def answer(target: Target, tokenizer: Tokenizer, prompt: Seq[int], count: int, layers: tuple[int, ...]) -> Answer:
    recorder = Recorder(layers)
    request = Request(list(prompt), max_tokens=count, stop_ids=frozenset(), id="probe")
    run = Run(Loop(target), tokenizer, Chain("recorder", (recorder,)), request)
    run.finish()
    taps = mx.concatenate(recorder.seen)
    mx.eval(taps)
    return Answer(tuple(run.sequence.tokens), len(prompt), taps, layers)


def probe(
    target: Target,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    prompts: Seq[Seq[int]],
    *,
    tokens: int = 64,
    on_score: Callable[[Score], None] | None = None,
) -> ProbeReport:
    """Score the file's own reading, then one axis after the other around the best so far, until nothing improves.

    Raises:
        DrafterRefused: the file itself does not fit the target.
    """
    config = checkpoint.config
    own = Reading(config.logits_start, 0, config.rope.interleaved, None)
    build(checkpoint, target)
    usable = [s for s in (-1, 0, 1) if config.taps[0] + s >= -1 and config.taps[-1] + s < target.spec.num_layers]
    layers = tuple(sorted({t + s for t in config.taps for s in usable}))
    answers = [answer(target, tokenizer, prompt, tokens, layers) for prompt in prompts]
    draft = config.block_size - 1
    scores: dict[Reading, Score] = {}

    def measure(reading: Reading) -> Score:
        if reading not in scores:
            scores[reading] = score(target, checkpoint, reading, answers, draft)
            if on_score:
                on_score(scores[reading])
        return scores[reading]

    best, before = measure(own), None
    while best is not before:
        before = best
        for found in [measure(reading) for reading in neighbours(before.reading, usable, config.causal)]:
            if found.committed > best.committed and found.clearly_better(before):
                best = found
    return ProbeReport(tuple(scores.values()), best, config.notes)


def neighbours(reading: Reading, shifts: Seq[int], causal: bool) -> Iterator[Reading]:
    """Readings that differ in one axis."""
    yield replace(reading, start=1 - reading.start)
    yield from (replace(reading, shift=s) for s in shifts if s != reading.shift)
    yield replace(reading, interleaved=not reading.interleaved)
    yield replace(reading, causal=not causal if reading.causal is None else None)


def score(target: Target, checkpoint: Checkpoint, reading: Reading, answers: Seq[Answer], draft: int) -> Score:
    """Draft at every place of the answers, and count what the answer confirms."""
    config = reading.apply(checkpoint.config)
    try:
        drafter = build(checkpoint._replace(config=config), target)
    except DrafterRefused:
        return Score(reading, ())
    counts: list[int] = []
    sampler = RowSampler(Sampling(), [0], target.spec.vocab_size)
    for known in answers:
        context: Any = drafter.new_context()
        taps = columns(known.taps, known.layers, config.taps, target.spec.hidden_size)
        truth = known.truth or known.tokens[1:]
        places = range(known.prompt, len(known.tokens) - draft, known.every)
        lines: list[mx.array] = []
        for at in places:
            drafter.observe(context, taps[context.length : at], context.length, known.tokens[context.length : at])
            lines.append(drafter.propose(context, known.tokens[at], draft, sampler).tokens)
            mx.async_eval(lines[-1])
        drafts: Any = mx.stack(lines).tolist() if lines else []
        counts += [1 + _prefix(line, truth[at:]) for at, line in zip(places, drafts, strict=True)]
    return Score(reading, tuple(counts))


def _prefix(drafts: Any, truth: Seq[int]) -> int:
    for i, (a, b) in enumerate(zip(drafts, truth, strict=False)):
        if a != b:
            return i
    return min(len(drafts), len(truth))

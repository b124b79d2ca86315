"""Every kind of drafter on the real loop: what is said is what plain decoding says, alone, together, and by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import mlx.core as mx

from engine.calibration.controlled_run import Positions, Run, Scripted
from engine.decoding.batch import Batch
from engine.decoding.loop import Loop
from engine.diagnostics.equivalence import compare
from engine.diagnostics.self_test.findings import Finding, Gauge
from engine.diagnostics.self_test.model_checks import Subject, words
from engine.diagnostics.self_test.tiny_configs import token_id
from engine.drafters.base import Context
from engine.drafters.chain import NONE, Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.drafters.tiny_drafters import KINDS, tiny_drafter
from engine.sampling.sampler import RowSampler
from engine.types import Proposal, Request, Sampling

PROMPTS = (words(90), words(33, seed=3), words(9, seed=4))
"""The first is past every window, and has so many ids that lookup finds something to copy."""
TOKENS = 10
LONG, SHORT = 7, 4
"""Draft lengths."""
SEEDED = Sampling(temperature=0.8, top_p=0.95, seed=11)
ALL = ("rehearsed", "lookup", *KINDS)
"""Names of drafters; `rehearsed` knows the answer and errs at every fourth token, so that parts of drafts are kept."""


class Silent:
    """A tokenizer for tokens that nobody reads."""

    def stream(self) -> Any:
        return self

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""

    incomplete = False


class Rehearsed(Scripted):
    """Proposes a known answer with every fourth token wrong: all, a part and none of a draft are kept in turn."""

    def __init__(self, answer: Sequence[int], prompt: int, taps: tuple[int, ...]) -> None:
        super().__init__([0], taps, name="rehearsed")
        self._answer, self._prompt = answer, prompt

    def propose(self, context: Context, pending: int, k: int, sampler: RowSampler) -> Proposal:
        assert isinstance(context, Positions)
        at = context.length + 1 - self._prompt
        ids = [(t + (at + i) % 4 // 3) % 288 for i, t in enumerate(self._answer[at : at + k])]
        return Proposal(mx.array(ids, dtype=mx.int32), self.source, drafter=self.name)


@dataclass(frozen=True, eq=False)
class Decoded:
    """A tiny model, and what it says without a drafter."""

    subject: Subject

    def run(self, chain: Chain, prompt: Sequence[int], cap: int, sampling: Sampling | None = None) -> Run:
        request = Request(list(prompt), max_tokens=TOKENS, stop_ids=frozenset(), sampling=sampling or Sampling())
        run = Run(Loop(self.subject.target), Silent(), chain, replace(request, id="self-test"))  # pyright: ignore[reportArgumentType]
        run.dial(cap)
        return run

    def says(self, chain: Chain, prompt: Sequence[int], cap: int, sampling: Sampling | None = None) -> Run:
        run = self.run(chain, prompt, cap, sampling)
        run.finish()
        return run

    @cached_property
    def plain(self) -> list[tuple[int, ...]]:
        """To each of PROMPTS."""
        return [self.says(NONE, prompt, 0).tokens for prompt in PROMPTS]

    @cached_property
    def seeded(self) -> tuple[int, ...]:
        return self.says(NONE, PROMPTS[0], 0, SEEDED).tokens

    def drafter(self, name: str) -> Any:
        target = self.subject.target
        if name == "rehearsed":
            return Rehearsed(self.plain[0], len(PROMPTS[0]), (0, target.spec.num_layers - 1))
        if name == "lookup":
            return Lookup(LookupSettings(min_n=1))
        precision = self.subject.precision
        made = tiny_drafter(name, target, token_id("<|mask|>"), precision.dtype)
        if precision.bits:
            made.quantize(precision.bits)  # as at load on Metal
        return made


def run(name: str, subject: Subject) -> Finding:
    gauge = Gauge(0.0)
    _lossless(_decoded(subject), name, gauge)
    return gauge.finding("drafters", f"{name} on {subject.name}", subject.precision.name)


@lru_cache(maxsize=1)
def _decoded(subject: Subject) -> Decoded:
    """Several drafters are tried on one model in a row."""
    return Decoded(subject)


def _lossless(decoded: Decoded, name: str, gauge: Gauge) -> None:
    chain = Chain(name, (decoded.drafter(name),))
    run = decoded.says(chain, PROMPTS[0], LONG)
    _same(decoded, gauge, PROMPTS[0], decoded.plain[0], run.tokens, "greedy")
    drafted, accepted = run.sequence.usage.drafted, run.sequence.usage.accepted
    if (not drafted and name != "lookup") or (name == "rehearsed" and not 0 < accepted < drafted):
        gauge.fail(f"{accepted} of {drafted} drafts accepted: it was not put to the test")
    run = decoded.says(chain, PROMPTS[0], SHORT, SEEDED)
    _same(decoded, gauge, PROMPTS[0], decoded.seeded, run.tokens, "seeded", SEEDED)
    _together(decoded, chain, gauge)


def _together(decoded: Decoded, chain: Chain, gauge: Gauge) -> None:
    """Three sequences in one batch, joining and leaving: each says what it says alone."""
    runs = [decoded.run(chain, prompt, SHORT) for prompt in PROMPTS]
    batch, loop, waiting = Batch(), runs[0].loop, list(runs)
    while waiting or batch.sequences:
        if waiting:
            run = waiting.pop(0)
            assert run.batch.state is not None
            batch.join(run.sequence, run.batch.state)
        loop.step(batch)
        batch.leave([s for s in batch.sequences if s.finish.reason])
    for prompt, expected, run in zip(PROMPTS, decoded.plain, runs, strict=True):
        _same(decoded, gauge, prompt, expected, run.tokens, f"three together, prompt of {len(prompt)}")


def _same(
    decoded: Decoded,
    gauge: Gauge,
    prompt: Sequence[int],
    expected: Sequence[int],
    got: Sequence[int],
    where: str,
    sampling: Sampling | None = None,
) -> None:
    """Equal tokens, or a tie at the first difference."""
    verdict = compare(decoded.subject.target, prompt, expected, got, sampling)
    if verdict.same:
        return
    if verdict.gap is None:
        gauge.fail(f"{where}: {len(got)} tokens instead of {len(expected)}")
    else:
        gauge.tie(f"{where}, token {verdict.position}", verdict.gap, decoded.subject.precision.dtype)

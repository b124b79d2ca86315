"""Speed of several ways of decoding, in one run: prompts × modes × trials, alternating, medians with their spread.

Every number comes from the same Round records that the panels show. Modes take turns within a prompt, so that what
else the machine does hits all of them; ratios are taken turn by turn against plain decoding. Knows no screen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.diagnostics.equivalence import Verdict, compare
from engine.diagnostics.race import comparable, split, start
from engine.engine import Engine
from engine.errors import Cancelled, UsageError
from engine.types import Request, Round, Source


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the half of the range that the middle half of the values takes."""

    median: float
    half: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if not values:
            return cls(0.0, 0.0, 0)
        if len(values) < 2:
            return cls(values[0], 0.0, len(values))
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(statistics.median(values), (high - low) / 2, len(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ±{self.half:.2g}"


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt decoded once."""

    prompt: int
    rounds: tuple[Round, ...]
    wall_ms: float
    """Decoding on the clock, from the first token on."""
    prefill_ms: float
    cpu_ms: float = 0.0
    """Processor time of the decoding."""
    verdict: Verdict | None = None

    @property
    def tokens(self) -> int:
        """Decoded tokens: the first one belongs to the prompt's reading."""
        return sum(len(r.tokens) for r in self.rounds[1:])

    @property
    def rounds_ms(self) -> float:
        """Time inside rounds, as the records say."""
        return sum(r.ms for r in self.rounds[1:])

    @property
    def tokens_per_s(self) -> float:
        """As the panel says it: decoded tokens over the time of their records."""
        return 1000.0 * self.tokens / self.rounds_ms if self.rounds_ms else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One mode over all prompts and trials."""

    mode: str
    label: str
    """All that was active."""
    tokens_per_s: Spread
    """Over trials; each is all prompts together."""
    ratio: Spread
    """To plain decoding of the same turn."""
    cpu_ratio: Spread
    """The same by processor time: on the CPU backend, what a busy machine hides."""
    acceptance: float
    """Of what the learned drafter proposed."""
    lookup_acceptance: float
    per_round: float
    """Tokens committed a round."""
    lookup_rounds: int
    draft_rounds: int
    host_share: float
    """Time of a round outside draft and verify."""
    caps: dict[int, int]
    """Draft length -> rounds."""
    identical: str
    """Checked against plain decoding."""
    trials: tuple[Trial, ...] = field(repr=False, default=())

    def as_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "label": self.label,
            "tokens_per_s": asdict(self.tokens_per_s),
            "ratio": asdict(self.ratio),
            "cpu_ratio": asdict(self.cpu_ratio),
            "acceptance": round(self.acceptance, 4),
            "lookup_acceptance": round(self.lookup_acceptance, 4),
            "per_round": round(self.per_round, 3),
            "lookup_rounds": self.lookup_rounds,
            "draft_rounds": self.draft_rounds,
            "host_share": round(self.host_share, 4),
            "caps": {str(k): n for k, n in sorted(self.caps.items())},
            "identical": self.identical,
        }


def bench(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    modes: Sequence[str],
    *,
    trials: int = 3,
    max_tokens: int = 96,
    request: Request | None = None,
    make: Callable[[Sequence[int]], Request] | None = None,
    progress: Callable[[str, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[Row]:
    """Measure `modes` (chains by name, "name:k" pins a draft length). Plain decoding is added when it is missing: it is
    what ratios and identity refer to. `request` gives the sampling and the stop ids; `make` builds each request anew
    from a prompt, for processors that remember where they are.

    Raises:
        UsageError: nothing to measure. UnknownDrafter: a name that is not loaded.
    """
    if not prompts or trials < 1:
        raise UsageError("A benchmark needs at least one prompt and one trial.")
    modes = ["none", *[m for m in modes if m != "none"]]
    for mode in modes:
        engine.chain(split(mode)[0])
    base = comparable(request or Request((0,)))
    taken: dict[str, list[list[Trial]]] = {mode: [[] for _ in range(trials)] for mode in modes}
    labels: dict[str, str] = {}
    total = trials * len(prompts) * len(modes)
    done = 0

    for trial in range(trials):
        for index, ids in enumerate(prompts):
            reference: tuple[int, ...] = ()
            # The first turn begins with plain decoding, which the others are compared with.
            shift = (trial + index) % len(modes)
            order = modes if trial == 0 else [*modes[shift:], *modes[:shift]]
            for mode in order:
                if stop is not None and stop():
                    raise Cancelled("The benchmark was stopped.")
                if progress is not None:
                    progress(mode, done / total)
                one = (
                    make(ids)
                    if make
                    else Request(tuple(ids), max_tokens=max_tokens, sampling=base.sampling, stop_ids=base.stop_ids)
                )
                result, labels[mode], tokens = engine.run_exclusive(
                    lambda m=mode, r=one, i=index, ref=reference: _once(engine, r, m, i, ref)
                )
                reference = tokens if mode == "none" and trial == 0 else reference
                taken[mode][trial].append(result)
                done += 1
    return [_row(mode, labels[mode], taken[mode], taken["none"]) for mode in modes]


def _once(
    engine: Engine, request: Request, mode: str, index: int, reference: tuple[int, ...] | None
) -> tuple[Trial, str, tuple[int, ...]]:
    run, label = start(engine, request, mode)
    rounds = run.finish()
    verdict = compare(engine.target, request.prompt, reference, run.tokens, request.sampling) if reference else None
    return Trial(index, tuple(rounds), run.wall_ms, run.prefill_ms, run.cpu_ms, verdict), label, run.tokens


def _speed(turn: Sequence[Trial], *, cpu: bool = False) -> float:
    ms = sum(t.cpu_ms if cpu else t.rounds_ms for t in turn)
    return 1000.0 * sum(t.tokens for t in turn) / ms if ms else 0.0


def _ratio(turns: Sequence[Sequence[Trial]], plain: Sequence[Sequence[Trial]], *, cpu: bool = False) -> Spread:
    pairs = [(_speed(mine, cpu=cpu), _speed(base, cpu=cpu)) for mine, base in zip(turns, plain, strict=True)]
    return Spread.of([mine / base for mine, base in pairs if base])


def _row(mode: str, label: str, turns: list[list[Trial]], plain: list[list[Trial]]) -> Row:
    trials = [t for turn in turns for t in turn]
    rounds = [r for t in trials for r in t.rounds[1:]]
    speeds = [_speed(turn) for turn in turns]
    caps: dict[int, int] = {}
    for r in rounds:
        caps[len(r.drafted)] = caps.get(len(r.drafted), 0) + 1
    wall = sum(t.wall_ms for t in trials)
    verdicts = [t.verdict for t in trials if t.verdict is not None]
    return Row(
        mode=mode,
        label=label,
        tokens_per_s=Spread.of(speeds),
        ratio=_ratio(turns, plain),
        cpu_ratio=_ratio(turns, plain, cpu=True),
        acceptance=_acceptance(rounds, Source.DRAFT),
        lookup_acceptance=_acceptance(rounds, Source.LOOKUP),
        per_round=sum(len(r.tokens) for r in rounds) / max(1, len(rounds)),
        lookup_rounds=sum(bool(r.drafted) and r.source is Source.LOOKUP for r in rounds),
        draft_rounds=sum(bool(r.drafted) and r.source is Source.DRAFT for r in rounds),
        # Verify includes the wait for the device; what the clock has beyond draft and verify is the host's.
        host_share=max(0.0, wall - sum(r.draft_ms + r.verify_ms for r in rounds)) / wall if wall else 0.0,
        caps=caps,
        identical=_identity(verdicts),
        trials=tuple(trials),
    )


def _acceptance(rounds: Sequence[Round], source: Source) -> float:
    mine = [r for r in rounds if r.drafted and r.source is source]
    return sum(r.accepted for r in mine) / max(1, sum(len(r.drafted) for r in mine))


def _identity(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "reference"
    bad = [v for v in verdicts if not v.ok]
    if bad:
        return f"{len(bad)} of {len(verdicts)} DIFFER: {bad[0]}"
    ties = sum(v.tie for v in verdicts)
    return f"identical in {len(verdicts) - ties} of {len(verdicts)}" + (f", {ties} at a tie" if ties else "")

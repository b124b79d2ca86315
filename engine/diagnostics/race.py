"""The same prompt through several drafters, one after another, to be replayed side by side on one clock.

The verdict is compared, never asserted. Knows no screen: `RaceResult` is what one draws, at any moment of the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from engine.calibration.calibrator import load_per_core
from engine.calibration.controlled_run import Run
from engine.calibration.record import BUSY
from engine.decoding.draft_length.policy import EngineCap, policy_for
from engine.diagnostics.equivalence import Verdict, compare
from engine.engine import Engine
from engine.errors import Cancelled, UsageError
from engine.types import Event, Piece, Request, Round, Source, Tokens

MOST = 4
Progress = Callable[[str, float], None]
Watch = Callable[[int, Sequence[Piece]], None]
"""(which arm, what it said since it was last asked), after each of its rounds."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way through the prompt."""

    label: str
    """All that was active: drafter, draft length."""
    drafter: str
    cap: int | str
    rounds: tuple[Round, ...]
    ends: tuple[float, ...]
    """Milliseconds on the arm's own clock at which each round was over; the prompt's reading does not count."""
    text: str
    prefill_ms: float
    verdict: Verdict | None = None
    """Against the first arm; None for the first arm itself."""
    pieces: tuple[Piece, ...] = ()
    """The text token by token, as it was delivered."""

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(t for r in self.rounds for t in r.tokens)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(s for r in self.rounds for s in r.sources)

    @property
    def ms(self) -> float:
        return self.ends[-1] if self.ends else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Decoding only: tokens after the first one, which the prompt's reading gives."""
        return 1000.0 * (len(self.tokens) - 1) / self.ms if self.ms else 0.0

    def tokens_at(self, ms: float) -> int:
        """Tokens on the screen after `ms` milliseconds of replay."""
        done = bisect_right(self.ends, ms)
        return sum(len(r.tokens) for r in self.rounds[:done])

    def pieces_at(self, ms: float) -> tuple[Piece, ...]:
        """What has been said after `ms` milliseconds of replay."""
        return self.pieces[: self.tokens_at(ms)]

    def rate_at(self, ms: float) -> float:
        """Tokens a second so far, by the replay's clock."""
        over = min(ms, self.ms)
        return 1000.0 * max(0, self.tokens_at(ms) - 1) / over if over > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RaceResult:
    """All arms of one race, the reference first."""

    arms: tuple[Arm, ...]
    busy: float = 0.0
    """Runnable processes a core when it began."""

    @property
    def note(self) -> str:
        """What the rates suffer from; empty when nothing is known."""
        return "other programs computed meanwhile: the rates mean little" if self.busy > BUSY else ""

    @property
    def identical(self) -> bool:
        """Every arm gave the reference's ids."""
        return all(arm.verdict is None or arm.verdict.same for arm in self.arms)

    @property
    def ok(self) -> bool:
        """Every arm gave the reference's ids, or parted from them at a tie."""
        return all(arm.verdict is None or arm.verdict.ok for arm in self.arms)

    @property
    def ms(self) -> float:
        """Length of the replay."""
        return max((arm.ms for arm in self.arms), default=0.0)

    def speedup(self, arm: Arm) -> float:
        """Against the first arm."""
        return arm.tokens_per_s / self.arms[0].tokens_per_s if self.arms and self.arms[0].tokens_per_s else 0.0

    @property
    def banner(self) -> str:
        """The verdict in one line."""
        if self.identical:
            return f"identical token ids ({len(self.arms[0].tokens)})"
        worst = next((a for a in self.arms if a.verdict and not a.verdict.ok), None)
        shown = worst or next(a for a in self.arms if a.verdict and not a.verdict.same)
        return f"{shown.label}: {shown.verdict}"


def race(
    engine: Engine,
    request: Request,
    drafters: Sequence[str],
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] | None = None,
) -> RaceResult:
    """Run `request` once with each drafter (chains by name; "name:k" pins a draft length). Decoding waits meanwhile.

    Raises:
        UsageError: fewer than two or more than four arms, or a name that is not loaded.
        Cancelled: `stop` said so.
    """
    if not 2 <= len(drafters) <= MOST:
        raise UsageError(f"A race needs two to {MOST} drafters, and got {len(drafters)}.")
    for name in drafters:
        engine.chain(split(name)[0])  # before the first arm has run for nothing
    request = comparable(request)
    busy, arms = load_per_core(), list[Arm]()
    for i, name in enumerate(drafters):
        if progress is not None:
            progress(name, i / len(drafters))

        def tell(done: float, pieces: Sequence[Piece], n: str = name, i: int = i) -> None:
            if progress is not None:
                progress(n, (i + done) / len(drafters))
            if watch is not None and pieces:
                watch(i, pieces)

        arm = engine.run_exclusive(lambda n=name, t=tell: _arm(engine, request, n, stop, t))
        if arms:
            first = arms[0]
            verdict = engine.run_exclusive(
                lambda a=arm, f=first: compare(engine.target, request.prompt, f.tokens, a.tokens, request.sampling)
            )
            arm = replace(arm, verdict=verdict)
        arms.append(arm)
    if progress is not None:
        progress("done", 1.0)
    return RaceResult(tuple(arms), busy)


def comparable(request: Request) -> Request:
    """The request as it can be compared: sampling without a seed gives another text each time, so it gets one."""
    sampling = request.sampling
    if sampling.greedy or sampling.seed is not None:
        return request
    return replace(request, sampling=replace(sampling, seed=1))


def split(name: str) -> tuple[str, EngineCap]:
    """ "dspark:4" -> ("dspark", 4); "dspark:derived" -> ("dspark", "derived")."""
    base, colon, cap = name.rpartition(":")
    if colon and cap.isdigit():
        return base, int(cap)
    return (base, cast("EngineCap", cap)) if colon and cap in ("auto", "derived", "full") else (name, None)


def start(engine: Engine, request: Request, name: str) -> tuple[Run, str]:
    """Open a run of one arm, on the model thread; also its full label."""
    base, pinned = split(name)
    chain = engine.chain(base)
    cap = pinned if pinned is not None else request.cap
    if isinstance(cap, str):
        drafter = engine.calibrator.name_of(chain.name)
        memory = engine.calibrator.book.open(drafter)
        policy = policy_for(None, cap, engine.calibrator.costs(drafter), chain, memory)
    else:
        policy = engine.policy(cap, chain)
    return Run(engine.loop, engine.tokenizer, chain, request, policy), label(engine, chain, cap, request)


def label(engine: Engine, chain: Any, cap: EngineCap, request: Request) -> str:
    """Everything that is active, so that no part of a row can hide."""
    parts: list[str] = []
    for part in chain.parts:
        settings = getattr(part, "settings", None)
        parts.append(
            f"{part.name}(n {settings.min_n}-{settings.max_n}, ≤{part.max_draft})"
            if part.source is Source.LOOKUP and settings
            else f"{part.name}(≤{part.max_draft})"
        )
    if not parts:
        return "plain"
    measured = engine.calibrator.costs(engine.calibrator.name_of(chain.name)) is not None
    chosen = next((c for c in (cap, engine.options.cap) if c is not None), "auto")
    unmeasured = chosen in ("auto", "derived") and not measured
    length = f"{chosen}{', not measured' if unmeasured else ''}"
    law = "" if request.sampling.greedy else f", T={request.sampling.temperature}"
    return f"{' then '.join(parts)}, cap {length}{law}"


def _arm(
    engine: Engine,
    request: Request,
    name: str,
    stop: Callable[[], bool] | None,
    tell: Callable[[float, Sequence[Piece]], None],
) -> Arm:
    run, said = start(engine, request, name)
    ends: list[float] = [0.0]
    pieces = _pieces(run.events)
    told = 0
    while not run.done:
        if stop is not None and stop():
            raise Cancelled("The race was stopped.")
        heard = len(run.events)
        run.step()
        ends.append(run.wall_ms)
        pieces += _pieces(run.events[heard:])
        tell(min(1.0, len(run.tokens) / request.max_tokens), pieces[told:])
        told = len(pieces)
    base, pinned = split(name)
    return Arm(
        label=said,
        drafter=base,
        cap=pinned if pinned is not None else ("auto" if request.cap is None else request.cap),
        rounds=tuple(run.rounds),
        ends=tuple(ends),
        text=run.sequence.finish.text,
        prefill_ms=run.prefill_ms,
        pieces=tuple(pieces),
    )


def _pieces(events: Sequence[Event]) -> list[Piece]:
    return [piece for event in events if isinstance(event, Tokens) for piece in event.pieces]

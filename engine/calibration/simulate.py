"""Other machines on paper: published curves in, caps and speed-ups out; and a dice game that plays a policy on them.

A machine is a TOML file with one table a pair: `verify` and `drafter` as {width or cap = ms}, `drafter_block` where one
draft has one price, `overhead`, and, where somebody measured it, `best_cap`. Knows no model.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from engine.decoding.draft_length.cost_model import TYPICAL, Chances, Costs, Curve, best_cap, constant, knee, rate
from engine.decoding.draft_length.policy import CapPolicy, RowView
from engine.errors import UsageError
from engine.types import Round, Source

BUILT_IN = "m4pro"


@dataclass(frozen=True, slots=True)
class Pair:
    """One target and drafter on a machine."""

    name: str
    costs: Costs
    longest: int
    best_cap: int | None = None
    """As published, where it was."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says about a pair."""

    pair: Pair
    cap: int
    tokens_per_s: float
    plain: float
    """Tokens a second without drafting; 0 when width 1 is unknown."""
    table: tuple[tuple[int, float], ...]
    """(cap, tokens/s), 0 first where it is known."""
    knee: int | None

    @property
    def speedup(self) -> float:
        return self.tokens_per_s / self.plain if self.plain else 0.0


def machine(source: str = BUILT_IN) -> list[Pair]:
    """The pairs of a machine file, or of one that ships with the program.

    Raises:
        UsageError: no such file, or one that does not say what a machine file says.
    """
    path = Path(source)
    shipped = resources.files("engine.calibration") / "machines" / f"{source}.toml"
    try:
        text = path.read_text("utf-8") if path.suffix == ".toml" else shipped.read_text("utf-8")
        return [_pair(name, table) for name, table in tomllib.loads(text).items()]
    except FileNotFoundError as error:
        raise UsageError(f"No machine file '{source}'; give the path of a .toml file, or '{BUILT_IN}'.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"'{source}' is not a machine file ({error}); each table needs verify = {{ 1 = ms, 2 = ms, … }}."
        ) from error


def _pair(name: str, table: dict[str, Any]) -> Pair:
    verify = Curve.of({int(w): float(ms) for w, ms in table["verify"].items()})
    block = "drafter_block" in table
    points = {1: table["drafter_block"]} if block else table.get("drafter", {1: 0.0})
    costs = Costs(verify, Curve.of({int(c): float(ms) for c, ms in points.items()}), float(table.get("overhead", 0.0)))
    best = table.get("best_cap")
    return Pair(name, costs, verify.last - 1, None if best is None else int(best))


def predict(pair: Pair, chances: Chances | None = None, depth: int = 0, rows: int = 1) -> Prediction:
    """Best cap and the rate of every cap."""
    chances = chances or constant(TYPICAL)
    costs = pair.costs
    priced = costs.verify.points[0][0] == 1
    cap = best_cap(costs, chances, pair.longest, depth, rows)
    table = tuple((c, rate(costs, chances, c, depth, rows)) for c in range(0 if priced else 1, pair.longest + 1))
    plain = rate(costs, chances, 0, depth, rows) if priced else 0.0
    return Prediction(pair, cap, rate(costs, chances, cap, depth, rows), plain, table, knee(costs.verify))


def profile(text: str) -> Chances:
    """Acceptance from the command line: one number for all positions, or one for each, the last going on.

    Raises:
        UsageError: not numbers between 0 and 1.
    """
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"'{text}' is not an acceptance: give 0.7, or one number a position: 0.9,0.8,0.7.") from error
    if any(not 0.0 <= v <= 1.0 for v in values):
        raise UsageError(f"Acceptance lies between 0 and 1; '{text}' does not.")
    return lambda cap: [values[min(i, len(values) - 1)] for i in range(cap)]


def play(
    policy: CapPolicy,
    costs: Costs,
    chances: Callable[[int], Chances],
    tokens: int,
    *,
    longest: int,
    seed: int = 0,
    noise: float = 0.0,
    source: Source = Source.DRAFT,
    price: Costs | None = None,
) -> list[Round]:
    """Decode `tokens` tokens by dice: chances(position) is the acceptance there, `price` what rounds really cost."""
    dice, done, rounds = random.Random(seed), 0, list[Round]()
    price = price or costs
    while done < tokens:
        view = RowView(depth=done, remaining=tokens - done, max_draft=longest, source=source, rounds=len(rounds))
        cap = min(policy.limit(view), longest, tokens - done - 1)
        kept = 0
        for chance in chances(done)(cap):
            if dice.random() >= chance:
                break
            kept += 1
        ms = price.round_ms(cap, done) * max(0.2, dice.gauss(1.0, noise))
        round_ = Round(
            request="play",
            index=len(rounds) + 1,
            start=done,
            tokens=(0,) * (kept + 1),
            drafted=(0,) * cap,
            accepted=kept,
            source=source if cap else Source.TARGET,
            cap=cap,
            verify_ms=ms,
            width=cap + 1,
            depth=done,
        )
        policy.learn(view, round_)
        rounds.append(round_)
        done += kept + 1
    return rounds


def tokens_per_s(rounds: list[Round]) -> float:
    """Over rounds of one sequence."""
    ms = sum(r.ms for r in rounds)
    return 1000.0 * sum(len(r.tokens) for r in rounds) / ms if ms else 0.0

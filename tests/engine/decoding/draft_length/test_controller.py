"""The adaptive length on synthetic machines, by dice: close to the best fixed cap, and never far below plain."""

from __future__ import annotations

import statistics

import pytest

from engine.calibration.simulate import play, tokens_per_s
from engine.decoding.draft_length.acceptance import Prior
from engine.decoding.draft_length.controller import PROBE_BUDGET
from engine.decoding.draft_length.cost_model import Chances, Costs, Curve, constant, distinct_experts
from engine.decoding.draft_length.learned import Memory
from engine.decoding.draft_length.policy import Adaptive, CapPolicy, Pinned
from engine.types import Source
from tests.cases import thinned

MACHINES = {
    "flat": {w: 100 + 0.5 * w for w in range(1, 17)},
    "knee": {**{w: 100 + w for w in range(1, 6)}, **{w: 150 + 12 * (w - 6) for w in range(6, 17)}},
    "cliff": {1: 100, **{w: 200 + w for w in range(2, 17)}},
    "linear": {w: 40 + 60 * w for w in range(1, 17)},
    "moe": {w: 30 + 70 * distinct_experts(8, 64, w) / 8 for w in range(1, 17)},
}
DRAFTERS = {"cheap": {1: 5, 8: 10}, "dear": {1: 40, 8: 80}}
LENGTH, LONGEST, SEEDS = 800, 7, range(3)
FADING: Chances = lambda cap: [max(0.2, 0.9 - 0.12 * i) for i in range(cap)]  # noqa: E731


def costs_of(machine: str, drafter: str) -> Costs:
    return Costs(Curve.of(MACHINES[machine]), Curve.of(DRAFTERS[drafter]), 1.0)


def speed(make, costs: Costs, chances: Chances, length: int = LENGTH, seeds=SEEDS) -> float:
    return statistics.mean(
        tokens_per_s(play(make(), costs, lambda _: chances, length, longest=LONGEST, seed=s, noise=0.05)) for s in seeds
    )


CHANCES = {"0.02": constant(0.02), "0.4": constant(0.4), "0.8": constant(0.8), "0.95": constant(0.95), "fading": FADING}


@pytest.mark.parametrize(("machine", "drafter", "likely"), thinned(MACHINES, DRAFTERS, CHANCES))
def test_adaptive_is_close_to_the_best_fixed_cap(machine, drafter, likely):
    chances = CHANCES[likely]
    costs = costs_of(machine, drafter)
    fixed = [speed(lambda k=k: Pinned(k), costs, chances) for k in range(LONGEST + 1)]
    adaptive = speed(lambda: Adaptive(costs), costs, chances)
    assert adaptive >= 0.93 * max(fixed), "three games of 800 tokens, the start included"
    # Never worse than plain by more than the probe budget, and a handful of rounds at the start.
    assert LENGTH / adaptive <= LENGTH / fixed[0] * (1 + PROBE_BUDGET) + 8 * costs.round_ms(4) / 1000


def test_hopeless_text_costs_little_where_drafting_nearly_pays():
    """The dearest case: a draft costs a fifth of a step, so that parking needs evidence and asking again seems wise."""
    costs = Costs(Curve.of({1: 74, 2: 80, 3: 84, 5: 93}), Curve.of({1: 8, 4: 9}), 0.5)
    memory = lambda: Memory(Prior(0.45, 0.9, 6.0))  # noqa: E731
    rounds = [play(Adaptive(costs, memory()), costs, lambda _: constant(0.0), 128, longest=4, seed=s) for s in range(5)]
    plain = 1000.0 / costs.round_ms(0)
    assert statistics.mean(tokens_per_s(game) for game in rounds) >= 0.975 * plain


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_it_unparks_soon_after_a_switch_to_friendly_text(machine, drafter):
    costs = costs_of(machine, drafter)
    best = max(speed(lambda k=k: Pinned(k), costs, constant(0.95)) for k in range(LONGEST + 1))
    if best < 1.25 * speed(lambda: Pinned(0), costs, constant(0.95)):
        pytest.skip("drafting cannot win here")
    # A probe that costs more than half a step is asked for more seldom: its losses are repaid first.
    patience = 64 if costs.round_ms(1) < 1.6 * costs.round_ms(0) else 120
    late = 0
    for seed in range(6):
        rounds = play(
            Adaptive(costs),
            costs,
            lambda position: constant(0.01 if position < 400 else 0.95),
            1200,
            longest=LONGEST,
            seed=seed,
        )
        after = [r for r in rounds if r.start >= 400]
        # Drafting again: every round of eight in a row proposes.
        runs = (i for i in range(len(after) - 8) if all(r.drafted for r in after[i : i + 8]))
        late += next(runs, 1000) > patience
    assert late <= 1


def test_it_parks_again_when_text_turns_hostile():
    costs = costs_of("flat", "dear")
    rounds = play(
        Adaptive(costs), costs, lambda p: constant(0.9 if p < 600 else 0.02), 1200, longest=LONGEST, noise=0.05
    )
    tail = [r for r in rounds if r.start >= 800]
    assert sum(bool(r.drafted) for r in tail) <= 0.1 * len(tail)
    assert sum(bool(r.drafted) for r in rounds if r.start < 600) > 100


def test_live_times_correct_a_curve_that_was_measured_wrong():
    """The curves say that 8 rows cost what 1 costs; this machine now charges three times as much for drafting."""
    believed = Costs(Curve.of({1: 100, 8: 104}), Curve.of({1: 10}))
    real = Costs(Curve.of({1: 100, 2: 290, 8: 320}), Curve.of({1: 10}))

    def run(policy: CapPolicy) -> float:
        rounds = play(policy, believed, lambda _: constant(0.6), 2000, longest=LONGEST, price=real, noise=0.03, seed=5)
        return tokens_per_s(rounds)

    assert run(Adaptive(believed)) >= 0.93 * run(Pinned(0))


def test_lookup_is_judged_apart():
    costs = costs_of("linear", "dear")
    policy = Adaptive(costs)
    play(policy, costs, lambda _: constant(0.02), 300, longest=LONGEST)
    assert policy._learned.parked
    assert not policy._lookup.parked
    play(policy, costs, lambda _: constant(0.99), 300, longest=32, source=Source.LOOKUP)
    assert policy._learned.parked
    before = policy._learned.acceptance.rounds
    play(policy, costs, lambda _: constant(0.01), 300, longest=32, source=Source.LOOKUP)
    assert policy._lookup.parked
    assert policy._learned.acceptance.rounds == before


def test_a_few_unlucky_rounds_at_the_start_do_not_park():
    policy = Adaptive(costs_of("flat", "cheap"))
    controller = policy._learned
    for _ in range(3):
        drafted = controller.choose(LONGEST)
        assert drafted
        controller.observe(drafted, 0, True, 100.0)
    assert not controller.parked


def test_a_round_cut_by_a_stop_is_no_rejection():
    policy = Adaptive(costs_of("flat", "cheap"))
    believed = policy._learned.acceptance
    before = believed.fit()[0]
    believed.observe(7, 2, whole=False)
    assert believed.fit()[0] >= before

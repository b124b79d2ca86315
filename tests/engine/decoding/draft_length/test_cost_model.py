"""Cost model: curves, expected tokens, derived caps, and the knee."""

import random
from dataclasses import replace

import pytest

from engine.calibration.simulate import machine, predict
from engine.decoding.draft_length.cost_model import (
    Costs,
    Curve,
    best_cap,
    committed,
    constant,
    derived_cap,
    distinct_experts,
    knee,
    rate,
)


def test_curve_interpolates_and_extends_its_last_slope():
    curve = Curve.of({2: 10.0, 4: 14.0, 8: 30.0})
    assert [curve(w) for w in (1, 2, 3, 4, 6, 8, 10)] == [10, 10, 12, 14, 22, 30, 38]


@pytest.mark.parametrize("values", [{}, {1: -1.0}, {1: float("nan")}])
def test_curve_refuses_nonsense(values):
    with pytest.raises(ValueError, match="cost curve"):
        Curve.of(values)


def test_committed_is_one_plus_the_products():
    assert committed(()) == 1.0
    assert committed((0.5, 0.5, 0.5)) == pytest.approx(1 + 0.5 + 0.25 + 0.125)


def test_batch_and_depth_are_priced():
    costs = Costs(
        Curve.of({1: 10, 8: 10}),
        Curve.of({1: 1.0}),
        overhead=0.5,
        slope=Curve.of({1: 0.001, 8: 0.008}),
        base_depth=512,
        batch={4: Curve.of({1: 20, 8: 90})},
    )
    assert costs.round_ms(0) == 10
    assert costs.round_ms(3, depth=512) == 11.5
    assert costs.round_ms(3, depth=1512) == pytest.approx(11.5 + 4.0)
    assert costs.verify_ms(8, rows=3) == 90
    flat, steep = best_cap(costs, constant(0.8), 7), best_cap(costs, constant(0.8), 7, rows=4)
    assert flat == 7
    assert steep < flat


def test_drafts_made_together_cost_what_was_measured_and_else_a_share_each():
    verify, batch = Curve.of({1: 10, 8: 10}), {4: Curve.of({1: 12, 8: 12})}
    apart = Costs(verify, Curve.of({1: 2, 7: 3}), batch=batch)
    assert apart.draft_ms(7, 4) == 12
    assert apart.round_ms(7, rows=4) == 24
    together = replace(apart, drafter_batch={2: Curve.of({1: 2.5, 7: 3.5}), 4: Curve.of({1: 3, 7: 5})})
    assert together.draft_ms(7) == 3
    assert together.draft_ms(7, 2) == 3.5
    assert together.draft_ms(7, 3) == together.draft_ms(7, 4) == together.draft_ms(7, 9) == 5
    assert together.round_ms(7, rows=4) == 17
    assert together.without_draft().round_ms(7, rows=4) == 12
    # What it costs decides: at this acceptance a draft for four pays only where it is made for all at once.
    kept = constant(0.35)
    assert rate(together, kept, 2, rows=4) > rate(together, kept, 0, rows=4) > rate(apart, kept, 2, rows=4)


def test_depth_only_shortens():
    costs = Costs(Curve.of(dict.fromkeys(range(1, 9), 20)), Curve.of({1: 2}), slope=Curve.of({1: 0.0001, 8: 0.004}))
    caps = [derived_cap(costs, 7, depth) for depth in (0, 500, 4_000, 30_000)]
    assert caps == sorted(caps, reverse=True)
    assert caps[0] == caps[1] == 7
    assert caps[-1] < 7


def test_a_known_bad_drafter_derives_to_zero():
    costs = Costs(Curve.of({1: 10, 8: 11}), Curve.of({1: 6}))
    assert derived_cap(costs, 7) >= 1
    assert derived_cap(costs, 7, chances=constant(0.2)) == 0


def test_derived_cap_is_the_published_best_of_the_m4_pro():
    """At least seven of the eight pairs, or within 3 % of the published cap's predicted rate."""
    pairs = machine("m4pro")
    assert len(pairs) == 8
    good = 0
    for pair in pairs:
        assert pair.best_cap is not None
        cap = predict(pair).cap
        good += rate(pair.costs, constant(0.7), cap) <= 1.03 * rate(pair.costs, constant(0.7), pair.best_cap)
    assert good >= 7
    assert sum(predict(pair).cap == pair.best_cap for pair in pairs) >= 7


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((10, 10, 10, 10, 10, 18), 6),
        ((10, 20, 20, 20), 2),
        ((10, 11, 12, 13), None),
        ((10,), None),
        ((10, 20), None),
    ],
)
def test_o20_knee_with_a_flat_step_and_at_width_two(values, expected):
    curve = {i + 1: float(v) for i, v in enumerate(values)}
    assert knee(Curve.of(curve)) == expected
    dice = random.Random(3)
    for _ in range(200):
        noisy = {w: v * dice.uniform(0.99, 1.01) for w, v in curve.items()}
        assert knee(Curve.of(noisy)) == expected


def test_moe_width_reads_more_experts():
    assert distinct_experts(8, 64, 1) == pytest.approx(8)
    assert 8 < distinct_experts(8, 64, 2) < 16
    assert distinct_experts(8, 64, 1000) == pytest.approx(64)

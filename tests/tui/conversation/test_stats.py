"""Every number comes from the rounds, and all of them agree."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.types import Round, Source
from tests.tui.fakes import script
from tui.conversation.stats import Tally, bar, human, percentages, spark, speed_up

DRAFTED = st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from([Source.DRAFT, Source.LOOKUP]))


def rounds(shapes: list[tuple[int, int, Source]]) -> list[Round]:
    made = []
    for i, (drafted, accepted, source) in enumerate(shapes):
        accepted = min(accepted, drafted) if i else 0
        drafts = tuple(range(drafted)) if i else ()
        tokens = (*drafts[:accepted], 99)
        made.append(Round("r", i, 5, tokens, drafts, accepted, source, "d", 8, 1.0, 20.0, 0.5, 1 + len(drafts)))
    return made


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_percentages_sum_to_a_hundred(counts: list[int]) -> None:
    shares = percentages(counts)
    assert sum(shares) == (100 if sum(counts) else 0)
    assert all(abs(s - 100 * c / sum(counts)) < 1 for s, c in zip(shares, counts, strict=True) if sum(counts))


@given(st.lists(DRAFTED, min_size=1, max_size=60))
def test_legend_ribbon_and_counts_agree(shapes: list[tuple[int, int, Source]]) -> None:
    tally = Tally()
    made = rounds(shapes)
    for round in made:
        tally.add(round)
    committed = sum(len(r.tokens) for r in made)
    assert tally.tokens == committed == sum(tally.by_source.values()) == sum(t.height for t in tally.ticks)
    assert sum(tally.legend.values()) == 100
    assert tally.accepted == sum(r.accepted for r in made)
    assert sum(tally.seconds) == sum(len(r.tokens) for r in made[1:])
    for places in tally.positions.values():
        assert all(a.drafted >= b.drafted and a.drafted >= a.accepted for a, b in itertools.pairwise(places))
    if tally.rounds:
        assert tally.rate is not None
        assert abs(tally.rate - tally.decoded / sum(r.ms for r in made[1:]) * 1000) < 1e-6


def test_nothing_is_claimed_that_was_not_measured() -> None:
    tally = Tally()
    assert tally.acceptance is tally.rate is tally.plain_rate is tally.per_round is None
    for event in script("some words that were drafted"):
        if isinstance(event, Round):
            tally.add(event)
    assert speed_up(tally, tally) is None


def test_plain_rate_is_that_of_rounds_that_proposed_nothing() -> None:
    whole, turn = Tally(), Tally()
    for i in range(1, 11):
        whole.add(Round("r", i, i, (1,), verify_ms=50.0))
    for i in range(1, 11):
        turn.add(Round("r", i, i, (1, 2, 3), (1, 2), 2, Source.DRAFT, "d", 2, 5.0, 55.0, width=3))
    assert whole.plain_rate == 20.0
    assert speed_up(turn, whole) == 2.5


def test_one_plain_round_that_waited_for_another_program_does_not_make_a_drafter_fast() -> None:
    whole = Tally()
    for i in range(1, 11):
        whole.add(Round("r", i, i, (1,), verify_ms=4430.0 if i == 3 else 50.0))
    assert whole.plain_rate == 20.0


def test_small_drawings() -> None:
    assert spark([0, 1, 2], 3) == "▁▄█"[0:1] + spark([1, 2], 2, 2.0)
    assert bar(0.5, 4) == "██"
    assert human(999) == "999"
    assert human(1843) == "1.8k"
    assert human(32000) == "32k"


def test_parts_of_a_chain_that_take_turns_are_no_switch():
    """Lookup and the learned drafter alternate within one chain; only another chain marks the ribbon."""
    tally = Tally()
    for index, (drafter, chain) in enumerate(
        [
            ("lookup+dspark", "lookup+dspark"),
            ("lookup", "lookup+dspark"),
            ("dspark", "lookup+dspark"),
            ("dspark", "dspark"),
        ]
    ):
        tally.add(Round("r", index, 10 + index, (1,), drafter=drafter, chain=chain))
    assert [tick.switched for tick in tally.ticks] == [False, False, False, True]
    assert tally.drafter == "dspark"

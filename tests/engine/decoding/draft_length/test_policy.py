"""Precedence of draft lengths, and what a policy may never do."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.draft_length.acceptance import Prior
from engine.decoding.draft_length.cost_model import Costs, Curve
from engine.decoding.draft_length.learned import Book, Memory
from engine.decoding.draft_length.policy import FALLBACK, Adaptive, Derived, Full, Pinned, RowView, policy_for
from engine.types import Round, Source
from tests.cases import examples

COSTS = Costs(Curve.of({1: 10, 8: 12}), Curve.of({1: 1}))


def view(longest: int = 7, source: Source = Source.DRAFT, **other: int) -> RowView:
    return RowView(**{"depth": 100, "remaining": 100, "max_draft": longest, "source": source, **other})


def test_precedence():
    assert isinstance(policy_for(None, None, COSTS), Adaptive)
    assert isinstance(policy_for(None, "auto", COSTS), Adaptive)
    assert isinstance(policy_for(None, "derived", COSTS), Derived)
    assert isinstance(policy_for(None, "full", COSTS), Full)
    assert policy_for(None, 3, COSTS).limit(view()) == 3
    assert policy_for(5, 3, COSTS).limit(view()) == 3
    assert policy_for(2, 3, COSTS).limit(view()) == 2
    assert policy_for(0, None, COSTS).limit(view()) == 0
    assert policy_for(5, "auto", COSTS).limit(view()) == 5


def test_without_a_measurement():
    dspark = SimpleNamespace(name="dspark")
    dflash = SimpleNamespace(name="dflash", full_block=True)
    chain = SimpleNamespace(parts=(SimpleNamespace(), dflash))
    assert policy_for(None, None, None, dspark).limit(view()) == FALLBACK
    assert policy_for(None, None, None, dspark).limit(view(32, Source.LOOKUP)) == 32
    assert policy_for(None, None, None, dflash).limit(view(15)) == 15
    assert policy_for(None, None, None, chain).limit(view(15)) == 15
    assert policy_for(None, None, None, dflash, fallback=4).limit(view(15)) == 4, "what a card knows of elsewhere"
    assert isinstance(policy_for(None, None, COSTS, dflash, fallback=4), Adaptive)


def test_a_pin_is_obeyed_whatever_happens():
    policy = Pinned(4)
    for i in range(200):
        assert policy.limit(view()) == 4
        policy.learn(view(), Round("r", i, 0, (1,), (1, 1, 1, 1), 0, Source.DRAFT, cap=4, verify_ms=50))


def test_conversations_do_not_share_what_they_learn_but_the_pair_does_a_little():
    book = Book()
    mine, other = book.open("dspark", "mine"), book.open("dspark", "other")
    learned, _ = mine.controllers(COSTS)
    for _ in range(64):
        learned.observe(4, 0, True, 11)
    assert learned.parked
    assert not other.controllers(COSTS)[0].parked
    assert book.open("dspark", "mine").controllers(COSTS)[0] is learned
    book.settle("dspark", mine)
    assert 0.5 < book.prior("dspark").first < 0.7
    moved = book.prior("dspark")
    book.settle("dspark", mine)
    assert book.prior("dspark") == moved, "the same rounds must not count twice"


def test_new_curves_start_a_conversation_over():
    memory = Memory()
    first = memory.controllers(COSTS)
    assert memory.controllers(COSTS) is first
    assert memory.controllers(Costs(Curve.of({1: 5}))) is not first


def test_derived_uses_what_is_known_of_the_pair():
    poor = Memory(Prior(first=0.1))
    dear = Costs(Curve.of({1: 10, 8: 12}), Curve.of({1: 5}))
    assert Derived(dear).limit(view()) >= 1
    assert Derived(dear, poor).limit(view()) == 0
    assert Derived(dear, poor).limit(view(32, Source.LOOKUP)) == 32


def test_a_drafter_that_declines_is_no_plain_step_and_is_parked():
    """Its confidence head cuts every draft to nothing: the draft was paid for, and nothing came of it."""
    memory = Memory()
    policy = Adaptive(COSTS, memory)
    learned, _ = memory.controllers(COSTS)
    asked: list[bool] = []
    for i in range(200):
        asked.append(policy.limit(view()) > 0)
        ms = 11.0 if asked[-1] else 10.0
        policy.learn(view(), Round("r", i + 1, 0, (1,), (), 0, cap=7, verify_ms=ms))
    assert learned.parked
    assert sum(asked[:30]) >= 6
    assert sum(asked[100:]) <= 20, "it goes on being asked"
    assert learned.timings.drift == 0.0, "the time of a declined draft was taken for a plain step's"


def test_a_drafter_that_was_not_asked_has_not_declined():
    """Behind a lookup that proposed, and while parked."""
    memory = Memory()
    policy = Adaptive(COSTS, memory)
    learned, _ = memory.controllers(COSTS)
    before = learned.acceptance.rounds
    for i in range(20):
        policy.limit(view(32, Source.LOOKUP))
        policy.learn(view(), Round("r", i + 1, 0, (1, 1), (1, 2), 1, Source.LOOKUP, cap=6, verify_ms=11))
    assert learned.acceptance.rounds == before


rounds = st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans(), st.floats(0.0, 1e4), st.integers(1, 4))


@examples(60)
@given(st.lists(rounds, max_size=120), st.sampled_from(["auto", "derived", "full", 3, None]), st.integers(0, 8))
def test_limits_stay_in_range(history, engine_cap, longest):
    policy = policy_for(None, engine_cap, COSTS)
    for i, (drafted, accepted, whole, ms, rows) in enumerate(history):
        for source in (Source.LOOKUP, Source.DRAFT):
            assert 0 <= policy.limit(view(longest, source, rows=rows, rounds=i)) <= longest
        accepted = min(accepted, drafted)
        policy.learn(
            view(longest),
            Round(
                "r",
                i + 1,
                0,
                (0,) * max(1, accepted + whole),
                (0,) * drafted,
                accepted,
                (Source.LOOKUP, Source.DRAFT)[i % 2] if drafted else Source.TARGET,
                verify_ms=ms,
                rows=rows,
            ),
        )

"""Running ahead of the reader: the same tokens, complete memories, only where waiting was for nothing."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from fakes import FixedIdle, ListContext, Run, ScriptedDrafter, tiny_llama
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.batch import RowFailed
from engine.decoding.draft_length.policy import Full, Pinned, RowView
from engine.decoding.loop import Loop
from engine.decoding.overlap import Idle, Starts
from engine.drafters.chain import NONE, Chain
from engine.drafters.prompt_lookup import Lookup
from engine.types import Sampling, Source
from tests.cases import examples

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class Choosy(ScriptedDrafter):
    """Knows beforehand where it has something to say."""

    def silent(self, context: ListContext, pending: int) -> bool:
        return not self.script([*context.ids, pending], 1)


class Eager(Loop):
    """Thinks that a round is all waiting, and counts how often it does not wait."""

    def __init__(self, target: Any, share: float = 1.1) -> None:
        super().__init__(target)
        self.idle = FixedIdle(share)  # pyright: ignore[reportAttributeAccessIssue]
        self.went = 0

    def _run_ahead(self, batch: Any, flight: Any) -> None:
        self.went += 1
        super()._run_ahead(batch, flight)


@pytest.fixture(scope="module", params=[None, 8], ids=["append", "window8"])
def target(request: pytest.FixtureRequest) -> Any:
    return tiny_llama(window=request.param, layers=4)


@pytest.fixture(scope="module")
def plain(target: Any) -> list[int]:
    return Run(target, PROMPT, max_tokens=60).output


def at_some(plain: list[int], places: set[int], right: bool = True) -> Choosy:
    """Proposes what comes next, or what does not, at some output indices only."""

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(PROMPT)
        return [t if right else (t + 1) % 64 for t in plain[at : at + k]] if at in places else []

    return Choosy(script, name="choosy")


@examples(30)
@given(
    places=st.sets(st.integers(1, 50), max_size=20),
    right=st.booleans(),
    tokens=st.integers(1, 55),
    stop=st.integers(0, 54),
)
def test_any_schedule_gives_the_plain_tokens_and_loses_no_row(
    target: Any, plain: list[int], places: set[int], right: bool, tokens: int, stop: int
) -> None:
    chain = Chain("choosy", (at_some(plain, places, right),))
    stops = frozenset([plain[stop]])
    expected = Run(target, PROMPT, NONE, max_tokens=tokens, stop_ids=stops).output
    run = Run(target, PROMPT, chain, max_tokens=tokens, stop_ids=stops, loop=Eager(target))
    assert run.output == expected
    assert run.state.lengths == [len(PROMPT) + len(expected) - 1]
    # The last round may end by a stop within its drafts; until then every part has seen every committed row.
    assert run.sequence.context(chain.parts[0]).length == len(run.sequence.tokens) - 1
    assert [r.index for r in run.rounds] == list(range(len(run.rounds)))


def test_sampled_text_is_the_same_whoever_waits(target: Any) -> None:
    sampling = Sampling(temperature=0.9, seed=7)
    waiting = Run(target, PROMPT, Chain("lookup", (Lookup(),)), max_tokens=50, sampling=sampling, loop=Eager(target, 0))
    eager = Eager(target)
    ahead = Run(target, PROMPT, Chain("lookup", (Lookup(),)), max_tokens=50, sampling=sampling, loop=eager)
    assert ahead.output == waiting.output
    assert eager.went > 5


def test_a_copy_begins_one_round_late_at_most(target: Any, plain: list[int]) -> None:
    chain = Chain("choosy", (at_some(plain, set(range(20, 60))),))
    loop = Eager(target)
    run = Run(target, PROMPT, chain, max_tokens=60, cap=4, loop=loop)
    assert run.output == plain[:60]
    first = next(r for r in run.rounds if r.drafted)
    assert first.start - len(PROMPT) == 21, "it could have begun at 20, which was known too late"
    assert loop.went == 19
    assert all(r.drafted for r in run.rounds[first.index : -1])


def test_nobody_runs_ahead_of_a_drafter_that_may_speak(target: Any, plain: list[int]) -> None:
    loop = Eager(target)
    Run(target, PROMPT, Chain("dumb", (ScriptedDrafter(lambda ids, k: []),)), max_tokens=20, loop=loop)
    assert loop.went == 0
    loop = Eager(target, share=0.0)
    Run(target, PROMPT, Chain("choosy", (at_some(plain, set()),)), max_tokens=20, loop=loop)
    assert loop.went == 0, "nothing to gain"


def test_a_resting_policy_is_not_waited_for(target: Any, plain: list[int]) -> None:
    """A learned drafter that is parked costs no waiting, however little there is to gain."""

    class Parked(Full):
        def limit(self, view: RowView) -> int:
            return 0 if view.rounds % 8 else view.max_draft

        def rests(self, view: RowView) -> bool:
            # The round under way is view.rounds: after it comes the next.
            return (view.rounds + 1) % 8 != 0

    drafter = ScriptedDrafter(lambda ids, k: plain[len(ids) - len(PROMPT) :][:k][:2])
    loop = Eager(target, share=0.0)
    run = Run(target, PROMPT, Chain("learned", (drafter,)), max_tokens=60, policy=Parked(), loop=loop)
    assert run.output == plain[:60]
    assert [r.index for r in run.rounds[1:-1] if r.drafted] == list(range(8, len(run.rounds) - 1, 8))
    assert loop.went > 30
    assert Pinned(0).rests(RowView(1, 9, 4))
    assert not Pinned(1).rests(RowView(1, 9, 4, source=Source.LOOKUP))


def test_the_loop_measures_what_waiting_costs(target: Any) -> None:
    loop = Loop(target)
    loop.idle = Idle()
    Run(target, PROMPT, NONE, max_tokens=40, loop=loop)
    assert 0.0 < loop.idle.share < 1.0


def test_a_part_that_fails_when_asked_for_silence_fails_its_row_alone(target: Any) -> None:
    class Broken(ScriptedDrafter):
        def silent(self, context: ListContext, pending: int) -> bool:
            raise RuntimeError("no memory")

    with pytest.raises(RowFailed, match="no memory") as failed:
        Run(target, PROMPT, Chain("broken", (Broken(lambda ids, k: []),)), max_tokens=5)
    assert failed.value.sequence.chain.name == "broken"


def test_share_and_rate() -> None:
    idle = Idle()
    assert idle.share == 0.0
    for _ in range(50):
        idle.observe(2.0, 1.0, 30.0)
    assert idle.share == pytest.approx(0.1)
    starts = Starts()
    assert starts.rate == pytest.approx(1 / 12)
    quiet, busy = frozenset({"lookup"}), frozenset[str]()
    for _ in range(40):
        starts.observe(quiet)
    assert starts.rate < 0.02
    for _ in range(40):
        for heard in (quiet, quiet, busy, busy):
            starts.observe(heard)
    assert 0.4 < starts.rate < 0.6, "every second silence ended; rounds that draft are no silence"


def test_a_batch_waits_when_one_row_must(target: Any, plain: list[int]) -> None:
    from engine.decoding.batch import Batch
    from engine.decoding.prefill import Prefill
    from tests.fakes import make_sequence

    loop, batch = Eager(target), Batch()
    chains = [Chain("choosy", (at_some(plain, set()),)), Chain("dumb", (ScriptedDrafter(lambda ids, k: []),))]
    for chain in chains:
        sequence = make_sequence(target, PROMPT, chain, max_tokens=12)
        prefill = Prefill(target, sequence, None, 64)
        prefill.start()
        while not prefill.done:
            prefill.step()
        loop.first(sequence, prefill.hidden)
        batch.join(sequence, prefill.state)
    for _ in range(4):
        loop.step(batch)
    assert loop.went == 0
    batch.leave([batch.sequences[1]])
    for _ in range(4):
        loop.step(batch)
    assert loop.went == 4
    batch.settle_ahead()
    assert batch.sequences[0].tokens[len(PROMPT) :] == plain[:9]
    mx.clear_cache()


def test_a_round_ahead_that_fails_takes_no_committed_round_along(target: Any, plain: list[int]) -> None:
    """What was committed and not read would be fed again, to a state that holds it already."""
    from engine.decoding.batch import Batch
    from engine.decoding.prefill import Prefill
    from tests.fakes import make_sequence

    class Failing(Eager):
        def _judge(self, row: Any, logits: Any, width: int, ahead: int = 0) -> Any:
            if ahead and self.went == 3 and row.sequence is batch.sequences[1]:
                raise RuntimeError("no memory")
            return super()._judge(row, logits, width, ahead)

    loop, batch = Failing(target), Batch()
    for _ in range(2):
        sequence = make_sequence(target, PROMPT, Chain("choosy", (at_some(plain, set()),)), max_tokens=20)
        prefill = Prefill(target, sequence, None, 64)
        prefill.start()
        while not prefill.done:
            prefill.step()
        loop.first(sequence, prefill.hidden)
        batch.join(sequence, prefill.state)
    both = list(batch.sequences)
    while not both[0].finish.reason:
        try:
            loop.step(batch)
        except RowFailed as failure:
            batch.leave([failure.sequence])
    assert [s.tokens[len(PROMPT) :] for s in both] == [plain[:20], plain[:20]]

"""The one loop: any drafter, any draft length, the same tokens; and never one too many."""

from __future__ import annotations

import random

import mlx.core as mx
import pytest
from fakes import Run, ScriptedDrafter, counting_target, tiny_llama
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.chain import NONE, Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.types import Round, Sampling, Source
from tests.cases import examples

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module", params=[None, 8], ids=["append", "window8"])
def target(request: pytest.FixtureRequest):
    return tiny_llama(window=request.param, layers=4)


@pytest.fixture(scope="module")
def plain(target) -> list[int]:
    return Run(target, PROMPT, max_tokens=48).output


def oracle(plain: list[int], wrong_at: set[int] = frozenset()) -> ScriptedDrafter:
    """Proposes the plain continuation, with errors at chosen output indices."""

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(PROMPT)
        return [(t + 1) % 64 if at + i in wrong_at else t for i, t in enumerate(plain[at : at + k])]

    return ScriptedDrafter(script)


@pytest.mark.parametrize("cap", [0, 1, 2, 4, 7, 16])
def test_an_oracle_drafter_changes_nothing_and_is_accepted_in_full(target, plain, cap):
    run = Run(target, PROMPT, Chain("oracle", (oracle(plain),)), max_tokens=48, cap=cap)
    assert run.output == plain
    for round_ in run.rounds[1:-1]:
        assert round_.accepted == len(round_.drafted) == cap


@pytest.mark.parametrize("cap", range(9))
def test_a_wrong_drafter_costs_rounds_and_no_token(target, plain, cap):
    run = Run(target, PROMPT, Chain("wrong", (oracle(plain, set(range(99))),)), max_tokens=48, cap=cap)
    assert run.output == plain
    assert all(r.accepted == 0 for r in run.rounds)


@examples(40)
@given(data=st.data())
def test_any_proposer_and_any_schedule_give_the_plain_tokens(target, plain, data):
    """Property: hypothesis chooses every draft and every length."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = random.Random(seed)

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(PROMPT)
        length = rng.randint(0, min(k, 12))
        right = plain[at : at + length]
        return [t if rng.random() < 0.8 else rng.randrange(64) for t in right]

    run = Run(target, PROMPT, Chain("any", (ScriptedDrafter(script),)), max_tokens=40)
    assert run.output == plain[:40]
    assert sum(len(r.tokens) for r in run.rounds) == 40
    assert run.state.lengths == [len(run.sequence.tokens) - 1]


@pytest.mark.parametrize("cap", [0, 1, 2, 4, 7, 16])
def test_lookup_equals_plain(target, plain, cap):
    chain = Chain("lookup", (Lookup(LookupSettings(min_n=1)),))
    run = Run(target, PROMPT, chain, max_tokens=48, cap=cap)
    assert run.output == plain
    assert all(s is not Source.DRAFT for r in run.rounds for s in r.sources)


def test_max_tokens_is_exact_for_every_budget_and_cap(target, plain):
    """Reported elsewhere as one token too many, or too few but charged (O2)."""
    for budget in range(1, 21):
        for cap in range(8):
            run = Run(target, PROMPT, Chain("oracle", (oracle(plain),)), max_tokens=budget, cap=cap)
            assert run.output == plain[:budget]
            assert run.sequence.usage.completion == budget
            assert run.sequence.finish.reason == "length"
            # One token of the budget is the target's own: nothing is verified that could not be delivered.
            for round_ in run.rounds[1:]:
                assert len(round_.drafted) <= budget - (round_.start - len(PROMPT)) - 1


def test_the_context_window_ends_an_answer():
    """The block is cut to what fits; the reason says that the window is full."""
    target = counting_target(64, context=20)
    drafter = ScriptedDrafter(lambda ids, k: [ids[-1] + 1 + i for i in range(k)])
    for cap in (0, 3, 8):
        run = Run(target, [1] * 12, Chain("s", (drafter,)), max_tokens=50, cap=cap)
        assert run.sequence.finish.reason == "context"
        assert run.output == list(range(2, 10))


def test_a_stop_id_inside_a_block_ends_everything_there(target, plain):
    """For every position of the stop token and every cap: ids, usage, rounds and state end at it (O1, O21)."""
    for at in range(1, 12):
        stop = plain[at]
        first = plain.index(stop)
        for cap in (0, 1, 3, 7):
            run = Run(
                target,
                PROMPT,
                Chain("oracle", (oracle(plain),)),
                max_tokens=48,
                cap=cap,
                stop_ids=frozenset([stop]),
            )
            assert run.output == plain[: first + 1]
            assert run.sequence.usage.completion == first + 1 == sum(len(r.tokens) for r in run.rounds)
            assert run.state.lengths == [len(PROMPT) + first]
            assert run.sequence.finish.reason == "stop"
            assert run.sequence.finish.stop == stop


def test_a_stop_string_at_every_place_of_a_block():
    """Stop strings over one, two and three tokens, at every offset of blocks of every width."""
    target = counting_target(128)
    prompt, first = [40], 41
    text = "".join(chr(c) for c in range(first, first + 24))
    drafter = ScriptedDrafter(lambda ids, k: [ids[-1] + 1 + i for i in range(k)])
    for at in range(1, 12):
        for length in (1, 2, 3):
            stop = text[at : at + length]
            for cap in (0, 1, 2, 5, 9):
                run = Run(target, prompt, Chain("s", (drafter,)), max_tokens=24, cap=cap, stop=(stop, "zz"))
                assert run.text == text[:at] == run.sequence.finish.text
                ids = run.output
                assert ids == list(range(first, first + at + length))
                assert run.sequence.usage.completion == len(ids)
                assert sum(len(r.tokens) for r in run.rounds) == len(ids)
                assert run.state.lengths == [len(prompt) + len(ids) - 1]


def test_one_evaluation_a_round(target, plain, monkeypatch):
    """Greedy, coupled and rejection: mx.eval is called once a round, whoever proposes."""
    calls = []
    original = mx.eval
    monkeypatch.setattr(mx, "eval", lambda *a: (calls.append(1), original(*a))[1])
    for sampling in (Sampling(), Sampling(temperature=0.8, seed=1), Sampling(temperature=0.8)):
        run = Run(target, PROMPT, Chain("oracle", (oracle(plain),)), max_tokens=30, cap=4, sampling=sampling)
        assert run.loop.evaluations == len(run.rounds)
        prefill = 1
        assert len(calls) == len(run.rounds) + prefill
        calls.clear()


def test_plain_decoding_runs_ahead_and_still_stops_exactly(target, plain):
    """The forward past the end is undone: the state is that of the delivered tokens."""
    stop = plain[20]
    cut = plain.index(stop) + 1
    run = Run(target, PROMPT, NONE, max_tokens=48, stop_ids=frozenset([stop]))
    assert run.output == plain[:cut]
    assert run.state.lengths == [len(PROMPT) + cut - 1]
    cold = Run(target, [*PROMPT, *plain[: cut - 1]], NONE, max_tokens=1)
    for warm, fresh in zip(run.state.layers, cold.state.layers, strict=True):
        a, b = warm.snapshot(0), fresh.snapshot(0)
        n = min(a.data[0].shape[2], b.data[0].shape[2])
        assert mx.allclose(a.data[0][:, :, -n:], b.data[0][:, :, -n:], atol=1e-5)


def test_sources_name_who_proposed(target, plain):
    wrong = {3, 4, 11}
    run = Run(target, PROMPT, Chain("mixed", (oracle(plain, wrong),)), max_tokens=30, cap=4)
    for round_ in run.rounds:
        assert isinstance(round_, Round)
        assert round_.sources == (Source.DRAFT,) * round_.accepted + (Source.TARGET,)
        assert round_.tokens[: round_.accepted] == round_.drafted[: round_.accepted]
    drafted = {r.start - len(PROMPT) + i for r in run.rounds for i, s in enumerate(r.sources) if s is Source.DRAFT}
    assert drafted.isdisjoint(wrong)


def test_a_chain_asks_in_order_and_every_part_observes(target, plain):
    """A lookup that never fires leaves the learned part in charge, and both contexts stay complete."""
    lookup, learned = Lookup(), oracle(plain)
    chain = Chain("lookup+scripted", (lookup, learned))
    run = Run(target, PROMPT, chain, max_tokens=48, cap=4)
    assert run.output == plain
    assert {r.drafter for r in run.rounds[1:]} <= {"lookup", "scripted", "lookup+scripted"}
    for part in chain.parts:
        assert run.sequence.context(part).length == len(run.sequence.tokens) - 1


def test_penalties_follow_the_draft(target):
    """A penalised verify row sees the drafts before it: speculative equals plain, token for token (O9)."""
    sampling = Sampling(presence_penalty=0.7, frequency_penalty=0.9, repetition_penalty=1.3, logit_bias={5: 1.5})
    plain = Run(target, PROMPT, max_tokens=40, sampling=sampling).output
    assert plain != Run(target, PROMPT, max_tokens=40).output
    for cap in (1, 3, 7):
        for wrong in (set(), {2, 5, 6, 13}):
            run = Run(target, PROMPT, Chain("o", (oracle(plain, wrong),)), max_tokens=40, cap=cap, sampling=sampling)
            assert run.output == plain


def test_a_seed_gives_one_text_for_every_drafter_and_cap(target):
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=7)
    plain = Run(target, PROMPT, max_tokens=40, sampling=sampling).output
    assert plain != Run(target, PROMPT, max_tokens=40).output
    assert plain != Run(target, PROMPT, max_tokens=40, sampling=Sampling(temperature=1.0, top_p=0.9, seed=8)).output
    for cap in (1, 2, 5, 16):
        for chain in (
            Chain("o", (oracle(plain, {1, 7, 8}),)),
            Chain("lookup", (Lookup(LookupSettings(min_n=1)),)),
        ):
            assert Run(target, PROMPT, chain, max_tokens=40, cap=cap, sampling=sampling).output == plain


def test_logprobs_come_from_raw_logits_and_do_not_depend_on_the_drafter(target, plain):
    reference = Run(target, PROMPT, max_tokens=16, logprobs=3)
    spec = Run(target, PROMPT, Chain("o", (oracle(plain, {4}),)), max_tokens=16, cap=5, logprobs=3)
    flat = [lp for r in reference.rounds for lp in r.logprobs]
    other = [lp for r in spec.rounds for lp in r.logprobs]
    assert [lp.token for lp in flat] == plain[:16] == [lp.token for lp in other]
    for a, b in zip(flat, other, strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
        assert a.logprob <= 0
        assert len(a.top) == 3
        assert a.top[0][0] == a.token
        assert [t for t, _ in a.top] == [t for t, _ in b.top]


def test_the_planted_fault_is_lossy(target, plain):
    """The hook that certificates are tested with really changes tokens."""
    from engine.decoding.loop import Loop

    loop = Loop(target)
    loop.flip = 1
    run = Run(target, PROMPT, Chain("o", (oracle(plain),)), max_tokens=30, cap=4, loop=loop)
    assert run.output != plain[:30]

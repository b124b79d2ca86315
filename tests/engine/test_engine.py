"""The engine as its users see it: submit, cancel at every stage, switch in mid-answer, batch, fail alone, close."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakes import ScriptedDrafter

from engine.engine import Engine, Options
from engine.errors import ContextOverflow, EngineClosed, UnknownDrafter, UsageError
from engine.kv_cache.full import AppendKV
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.types import Failed, Finished, Prefilled, Prefilling, Request, Round, Sampling, Source, Tokens
from tests.cases import thinned

GOLDEN = Path(__file__).parents[1] / "golden" / "targets" / "tiny-qwen3"
EXPECTED = json.loads((GOLDEN / "golden" / "expected.json").read_text())


@pytest.fixture(scope="module")
def engine():
    with open_engine(GOLDEN, options=Options(max_batch=4)) as opened:
        opened.add_drafter(ScriptedDrafter(lambda ids, k: [ids[-1]] * k, name="echo"))
        yield opened


def run(engine: Engine, prompt: list[int], **kwargs: Any) -> list[Any]:
    return list(engine.submit(Request(prompt, **{"stop_ids": frozenset(), **kwargs})))


@pytest.mark.parametrize("index", thinned(range(8)))
def test_greedy_tokens_equal_the_reference(engine, index):
    """golden/targets/tiny-qwen3: plain and lookup at every cap."""
    prompt, expected = EXPECTED["prompts"][index], EXPECTED["greedy"][index]
    plain = run(engine, prompt, max_tokens=96, drafter="none")
    assert list(plain[-1].tokens) == expected
    for cap in (0, 1, 2, 4, 7, 16):
        events = run(engine, prompt, max_tokens=96, drafter="lookup", cap=cap)
        assert list(events[-1].tokens) == expected
        rounds = [e for e in events if isinstance(e, Round)]
        assert all(len(r.drafted) <= cap for r in rounds)
        assert [t for r in rounds for t in r.tokens] == expected


def test_events_come_in_order_and_agree(engine):
    events = run(engine, EXPECTED["prompts"][0], max_tokens=20)
    kinds = [type(e) for e in events]
    assert kinds[0] is Prefilling
    assert kinds.index(Prefilled) < kinds.index(Round) < kinds.index(Tokens)
    assert kinds[-1] is Finished
    last: Finished = events[-1]
    rounds = [e for e in events if isinstance(e, Round)]
    pieces = [p for e in events if isinstance(e, Tokens) for p in e.pieces]
    assert tuple(t for r in rounds for t in r.tokens) == last.tokens
    assert [p.token for p in pieces] == list(last.tokens)
    assert [p.source for p in pieces] == [s for r in rounds for s in r.sources]
    assert "".join(p.text for p in pieces) == last.text
    assert last.usage.completion == len(last.tokens) == 20
    assert last.usage.rounds == len(rounds)


def test_a_batch_of_rows_equals_each_row_alone(engine):
    """Eight requests with different prompts, lengths, seeds and drafters, four at a time."""
    wishes = [
        {
            "max_tokens": 10 + 5 * i,
            "drafter": ("none", "lookup", "echo", "lookup+echo")[i % 4],
            "sampling": Sampling() if i % 2 == 0 else Sampling(temperature=0.9, seed=i),
            "cap": 3,
        }
        for i in range(8)
    ]
    alone = [run(engine, EXPECTED["prompts"][i], **w)[-1] for i, w in enumerate(wishes)]
    tickets = [engine.submit(Request(EXPECTED["prompts"][i], stop_ids=frozenset(), **w)) for i, w in enumerate(wishes)]
    together = [list(t) for t in tickets]
    for one, events in zip(alone, together, strict=True):
        assert events[-1].tokens == one.tokens
    assert max(e.rows for events in together for e in events if isinstance(e, Round)) > 1


def test_a_drafter_is_switched_in_mid_answer_from_the_next_round_on(engine):
    prompt, expected = EXPECTED["prompts"][1], EXPECTED["greedy"][1]
    seen: list[Any] = []
    ready = threading.Event()
    done = threading.Event()
    holder: list[Any] = []

    def listen(event: Any) -> None:
        seen.append(event)
        if isinstance(event, Round):
            ready.wait(5)
            if event.index == 5:
                holder[0].use("echo", 2)
            if event.index == 12:
                holder[0].use("lookup+echo", None)
        if isinstance(event, Finished | Failed):
            done.set()

    holder.append(engine.submit(Request(prompt, max_tokens=96, drafter="none", stop_ids=frozenset()), listen))
    ready.set()
    assert done.wait(60)
    assert list(seen[-1].tokens) == expected
    rounds = [e for e in seen if isinstance(e, Round)]
    assert {r.drafter for r in rounds[:6]} == {"none"}
    assert {r.drafter for r in rounds[7:12]} == {"echo"}
    assert any(r.drafter == "lookup+echo" or r.source is Source.LOOKUP for r in rounds[14:])


def test_unknown_drafters_are_named(engine):
    ticket = engine.submit(Request([1, 2], max_tokens=2))
    with pytest.raises(UnknownDrafter, match="there are: none, lookup"):
        ticket.use("nonsense")
    list(ticket)
    with pytest.raises(UnknownDrafter):
        engine.submit(Request([1, 2], drafter="nonsense"))
    engine.offered.refuse("dflash", Source.DRAFT, "its file is for another model")
    with pytest.raises(UnknownDrafter, match="its file is for another model"):
        engine.drafter = "dflash"
    assert not next(d for d in engine.drafters if d.name == "dflash").available


def test_cancel_keeps_what_was_delivered(engine):
    seen: list[Any] = []
    done = threading.Event()
    holder: list[Any] = []
    ready = threading.Event()

    def listen(event: Any) -> None:
        seen.append(event)
        if isinstance(event, Round) and event.index == 6:
            ready.wait(5)
            holder[0].cancel()
        if isinstance(event, Finished):
            done.set()

    holder.append(engine.submit(Request(EXPECTED["prompts"][2], max_tokens=90, stop_ids=frozenset()), listen))
    ready.set()
    assert done.wait(30)
    last = seen[-1]
    assert last.reason == "cancel"
    assert 7 <= len(last.tokens) < 40
    assert last.usage.completion == len(last.tokens)
    assert list(last.tokens) == EXPECTED["greedy"][2][: len(last.tokens)]
    assert "".join(e.text for e in seen if isinstance(e, Tokens)) == last.text


def test_cancel_in_the_queue_and_in_the_prefill(engine):
    long = (EXPECTED["prompts"][0] * 100)[:3000]
    first = engine.submit(Request(long, max_tokens=5))
    others = [engine.submit(Request(long, max_tokens=5)) for _ in range(6)]
    for ticket in others:
        ticket.cancel()
    for event in first:
        if isinstance(event, Prefilling) and event.done:
            first.cancel()
    assert isinstance(event, Finished)
    assert event.reason == "cancel"
    for ticket in others:
        events = list(ticket)
        assert events[-1].reason == "cancel"
        assert events[-1].tokens == ()
    assert run(engine, EXPECTED["prompts"][0], max_tokens=4)[-1].reason == "length"
    assert engine.scheduler.load == (0, 0)


def test_exclusive_work_runs_between_rounds_while_rows_decode(engine):
    """What a busy batch must never starve: calibration, a race, shedding."""
    ticket = engine.submit(Request(EXPECTED["prompts"][0], max_tokens=90, stop_ids=frozenset()))
    assert engine.run_exclusive(lambda: int(mx.array(41).item()) + 1) == 42
    with pytest.raises(ZeroDivisionError):
        engine.run_exclusive(lambda: 1 // 0)
    assert list(ticket)[-1].reason == "length"


def test_a_failure_is_an_event_and_the_engine_goes_on(engine):
    def broken(ids: list[int], k: int) -> list[int]:
        if len(ids) > 20:
            raise ValueError("the drafter broke")
        return [1] * k

    engine.add_drafter(ScriptedDrafter(broken, name="broken"))
    events = run(engine, EXPECTED["prompts"][0], max_tokens=60, drafter="broken", cap=2)
    assert isinstance(events[-1], Failed)
    assert "the drafter broke" in events[-1].message
    assert list(run(engine, EXPECTED["prompts"][0], max_tokens=96)[-1].tokens) == EXPECTED["greedy"][0]


def test_who_cannot_join_a_batch_fails_alone(engine, monkeypatch: pytest.MonkeyPatch):
    """Half of the layers had taken the new row when the next one could not: rows and sequences must agree again."""
    layers: list[Any] = []
    extend = AppendKV.extend

    def failing(self: AppendKV, other: AppendKV) -> None:
        layers.append(self)
        if len(layers) == 3:
            self.lengths += other.lengths
            raise RuntimeError("no memory")
        extend(self, other)

    monkeypatch.setattr(AppendKV, "extend", failing)
    decoding = threading.Event()
    one: list[Any] = []

    def listen(event: Any) -> None:
        one.append(event)
        if isinstance(event, Round):
            decoding.set()

    first = engine.submit(Request(EXPECTED["prompts"][0], max_tokens=96, stop_ids=frozenset(), drafter="none"), listen)
    assert decoding.wait(20)
    two = run(engine, EXPECTED["prompts"][1], max_tokens=10)
    three = run(engine, EXPECTED["prompts"][2], max_tokens=96, drafter="none")
    assert isinstance(two[-1], Failed)
    assert "no memory" in two[-1].message
    assert list(three[-1].tokens) == EXPECTED["greedy"][2]
    deadline = time.monotonic() + 20
    while not isinstance(one[-1], Finished) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(one[-1].tokens) == EXPECTED["greedy"][0]
    assert first is not None


def test_a_request_that_gets_no_state_is_told_and_no_other(engine, monkeypatch: pytest.MonkeyPatch):
    new_state, asked = engine.target.new_state, []

    def failing() -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise RuntimeError("no memory")
        return new_state()

    monkeypatch.setattr(engine.target, "new_state", failing, raising=False)
    long = engine.submit(Request(EXPECTED["prompts"][0] * 30, max_tokens=3, stop_ids=frozenset(), drafter="none"))
    short = engine.submit(Request(EXPECTED["prompts"][1], max_tokens=3, stop_ids=frozenset(), drafter="none"))
    events = list(short)
    assert isinstance(events[-1], Failed)
    assert "no memory" in events[-1].message
    assert isinstance(list(long)[-1], Finished)


def test_a_listener_that_raises_only_loses_its_own_request(engine):
    def listen(event: Any) -> None:
        raise RuntimeError("front end fault")

    engine.submit(Request(EXPECTED["prompts"][0], max_tokens=30), listen)
    assert list(run(engine, EXPECTED["prompts"][3], max_tokens=20)[-1].tokens) == EXPECTED["greedy"][3][:20]
    deadline = time.monotonic() + 10
    while engine.scheduler.load != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.scheduler.load == (0, 0)


def test_bad_requests_are_refused_before_they_start(engine):
    with pytest.raises(UsageError, match="empty"):
        engine.submit(Request([]))
    with pytest.raises(UsageError, match="max_tokens"):
        engine.submit(Request([1], max_tokens=0))
    with pytest.raises(UsageError, match="outside"):
        engine.submit(Request([1, 100_000]))
    with pytest.raises(ContextOverflow) as caught:
        engine.submit(Request([1] * 5000))
    assert (caught.value.tokens, caught.value.limit) == (5000, 4096)
    assert caught.value.exit_code == 2


def test_close_cancels_and_refuses(tmp_path):
    engine = open_engine(GOLDEN)
    ticket = engine.submit(Request(EXPECTED["prompts"][0], max_tokens=2000, stop_ids=frozenset()))
    engine.close()
    assert list(ticket)[-1].reason in ("cancel", "length", "context")
    with pytest.raises(EngineClosed):
        engine.submit(Request([1]))


def test_a_repeated_prompt_is_served_from_the_prefix_cache():
    """Counted at the target, not only in the report: exact repeat, next turn, and the answers stay equal."""
    with open_engine(GOLDEN, options=Options(cache=PrefixCache(1 << 28))) as engine:
        prompt = EXPECTED["prompts"][0] * 8
        cold = run(engine, prompt, max_tokens=20)
        warm = run(engine, prompt, max_tokens=20)
        turn = [*prompt, *cold[-1].tokens, 65, 66, 67]
        third = run(engine, turn, max_tokens=8)
        assert warm[-1].tokens == cold[-1].tokens
        cached = [next(e for e in events if isinstance(e, Prefilled)).cached for events in (cold, warm, third)]
        assert cached[0] == 0
        assert cached[1] >= len(prompt) - 2
        assert cached[2] >= len(prompt) + 19 - 1
    with open_engine(GOLDEN) as fresh:
        assert run(fresh, turn, max_tokens=8)[-1].tokens == third[-1].tokens

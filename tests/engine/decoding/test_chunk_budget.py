"""While a row decodes, a prompt is read in parts that it can wait for; the parts follow the measured cost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from fakes import TableTarget, make_sequence

from engine.decoding.chunk_budget import FIRST, LEAST, Pace
from engine.decoding.loop import Loop
from engine.decoding.plan import Plan
from engine.decoding.scheduler import Scheduler
from engine.kv_cache.base import State
from engine.targets.base import Body
from engine.types import Event, Finished, Prefilling, Round

VOCAB = 32
PROMPT = 3000


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(TableTarget):
    """A target of which each token costs so many milliseconds of a clock that only it moves."""

    def __init__(self, clock: Clock, ms_per_token: float) -> None:
        table = mx.zeros((VOCAB, VOCAB))
        mx.eval(table)
        super().__init__(table, context=100_000)
        self.clock, self.ms_per_token = clock, ms_per_token
        self.slower_from: tuple[int, float] | None = None

    def body(self, ids: mx.array, state: State, taps: Sequence[int] = (), embeddings: mx.array | None = None) -> Body:
        if self.slower_from is not None and self.fed > self.slower_from[0]:
            self.ms_per_token = self.slower_from[1]
        self.clock.now += ids.shape[1] * self.ms_per_token / 1e3
        return super().body(ids, state, taps, embeddings)


def waits(stall_ms: float, ms_per_token: float, slower_from: tuple[int, float] | None = None) -> list[float]:
    """Milliseconds between the rounds of a row while another one's long prompt is read."""
    clock = Clock()
    target = Timed(clock, ms_per_token)
    target.slower_from = slower_from
    stamps: list[float] = []
    ended, reading = threading.Event(), threading.Event()

    def sequence(name: str, prompt: list[int], tokens: int, listener: Callable[[Event], None]) -> Any:
        made = make_sequence(target, prompt, max_tokens=tokens, listener=listener)
        made.request = replace(made.request, id=name)
        return made

    def decoding(event: Event) -> None:
        if isinstance(event, Round):
            if reading.is_set():
                stamps.append(clock.now * 1e3)
            if event.index == 3:
                scheduler.submit(sequence("other", [1] * PROMPT, 2, other))
        if isinstance(event, Finished):
            ended.set()

    def other(event: Event) -> None:
        if isinstance(event, Prefilling):
            reading.set()
        else:
            reading.clear()
            row.cancel()

    scheduler = Scheduler(clock)
    try:
        row = sequence("row", [1, 2], 50_000, decoding)
        plan = Plan(target, Loop(target), max_batch=2, chunk=256, pace=Pace(stall_ms))
        scheduler.run_exclusive(lambda: scheduler.use(plan)).result()
        scheduler.submit(row)
        assert ended.wait(60)
    finally:
        scheduler.close()
    return [b - a for a, b in itertools.pairwise(stamps)]


def test_a_row_waits_no_longer_than_the_budget() -> None:
    found = waits(stall_ms=100, ms_per_token=2.0)
    assert len(found) >= PROMPT // 50 - 2
    assert max(found) <= 100 + 3 * 2.0, "the part of the prompt, and the row's own round"
    assert max(found) > 80, "and the budget is used"


def test_without_a_budget_a_row_waits_for_whole_chunks() -> None:
    assert max(waits(stall_ms=0, ms_per_token=2.0)) >= 256 * 2.0


def test_a_machine_that_slows_down_costs_one_long_wait() -> None:
    found = waits(stall_ms=100, ms_per_token=1.0, slower_from=(1000, 5.0))
    late = [w for w in found if w > 100 + 3 * 5.0]
    assert len(late) <= 1
    assert len(found) > PROMPT // 100


def test_a_slow_machine_still_reads() -> None:
    found = waits(stall_ms=1, ms_per_token=2.0)
    assert max(found) <= (LEAST + 3) * 2.0


def test_short_prompts_that_came_together_are_read_in_one_wait() -> None:
    """The rows of all of them then share the next round."""
    clock = Clock()
    target = Timed(clock, 1.0)
    ended, rounds = threading.Semaphore(0), list[int]()

    def hear(event: Event) -> None:
        if isinstance(event, Round):
            rounds.append(event.rows)
            if event.request == "row" and event.index == 3:
                for i in range(3):
                    made = make_sequence(target, [1] * 20, max_tokens=4, listener=hear)
                    made.request = replace(made.request, id=f"{i}")
                    scheduler.submit(made)
        elif isinstance(event, Finished):
            ended.release()

    scheduler = Scheduler(clock)
    try:
        row = make_sequence(target, [1, 2], max_tokens=12, listener=hear)
        row.request = replace(row.request, id="row")
        plan = Plan(target, Loop(target), max_batch=4, pace=Pace(250))
        scheduler.run_exclusive(lambda: scheduler.use(plan)).result()
        scheduler.submit(row)
        for _ in range(4):
            assert ended.acquire(timeout=60)
    finally:
        scheduler.close()
    assert 4 in rounds
    assert not {2, 3} & set(rounds[: rounds.index(4)]), "nobody decoded before all had been read"


def test_a_prompt_that_nobody_waits_for_is_read_in_whole_chunks() -> None:
    pace = Pace(100)
    pace.learn(256, 25_600)
    assert pace.tokens(256, waited_for=False) == 256
    assert pace.tokens(256, waited_for=True) == LEAST


@pytest.mark.parametrize(("tokens", "ms", "then"), [(64, 64.0, 100), (64, 6400.0, LEAST), (64, 0.64, 256)])
def test_the_last_chunk_sets_the_next(tokens: int, ms: float, then: int) -> None:
    pace = Pace(100)
    assert pace.tokens(256, waited_for=True) == FIRST
    pace.learn(tokens, ms)
    assert pace.tokens(256, waited_for=True) == then


def test_a_handful_of_tokens_teaches_nothing() -> None:
    pace: Any = Pace(100)
    pace.learn(64, 64.0)
    pace.learn(3, 300.0)
    assert pace.ms_per_token == 1.0

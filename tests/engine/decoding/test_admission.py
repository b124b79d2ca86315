"""Requests run together as far as their bytes allow, in order, and give everything back."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import tiny_llama
from live_server import Live

from engine.decoding.admission import Admission, rows_budget
from engine.drafters.chain import NONE, Chain
from engine.drafters.load import load_drafter
from engine.drafters.prompt_lookup import Lookup
from engine.engine import Engine, Options
from engine.errors import RequestTooLarge
from engine.load import open_engine
from engine.types import Event, Finished, Prefilled, Request, Round
from server.settings import Settings

GOLDEN = Path(__file__).parents[2] / "golden"
TARGET = GOLDEN / "targets" / "tiny-qwen3"
FAMILIES = ("tiny-qwen3", "tiny-qwen3_5", "tiny-nemotron_h", "tiny-lfm2", "tiny-gemma4", "tiny-muse_glimmer")


def wish(length: int, answer: int = 8, first: int = 1, **fields: Any) -> Request:
    prompt = [first, *[(7 * j + first) % 250 for j in range(length - 1)]]
    return Request(prompt, answer, stop_ids=frozenset(), **{"drafter": "lookup", "cap": 2, **fields})


def cost(engine: Engine, *wishes: Request) -> int:
    needs = [
        engine.admission.need(len(w.prompt), w.max_tokens, engine.chain(w.drafter or engine.drafter)) for w in wishes
    ]
    return engine.admission.bytes(needs)


def opened(budget: int, family: Path = TARGET, **options: Any) -> Engine:
    return open_engine(family, options=Options(max_batch=8, chunk=32, state_bytes=budget, **options))


class Watch:
    """Hears everything of some requests and looks at the bytes each time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.begun: list[str] = []
        self.most = self.together = 0

    def __call__(self, event: Event) -> None:
        self.most = max(self.most, self.engine.state_bytes)
        if isinstance(event, Prefilled):
            self.begun.append(event.request)
        elif isinstance(event, Round):
            self.together = max(self.together, event.rows)


def run(engine: Engine, wishes: Sequence[Request]) -> tuple[Watch, list[tuple[int, ...]]]:
    watch = Watch(engine)
    found: dict[int, tuple[int, ...]] = {}
    ended = threading.Semaphore(0)

    def listener(i: int) -> Any:
        def hear(event: Event) -> None:
            watch(event)
            if isinstance(event, Finished):
                found[i] = event.tokens
                ended.release()

        return hear

    for i, one in enumerate(wishes):
        engine.submit(one, listener(i))
    for _ in wishes:
        assert ended.acquire(timeout=60)
    return watch, [found[i] for i in range(len(wishes))]


@pytest.mark.parametrize(("family", "seed"), [("tiny-qwen3", 1), ("tiny-nemotron_h", 2), ("tiny-gemma4", 3)])
def test_admitted_bytes_never_exceed_the_budget_and_all_come_back(family: str, seed: int) -> None:
    chance = random.Random(seed)
    wishes = [
        wish(
            chance.randint(80, 300),
            chance.randint(2, 12),
            first=i,
            id=f"{i}",
            drafter=chance.choice(["none", "lookup"]),
        )
        for i in range(7)
    ]
    with opened(0, GOLDEN / "targets" / family) as engine:
        alone = [list(engine.submit(w))[-1].tokens for w in wishes]
        largest = max(cost(engine, w) for w in wishes)
    with opened(2 * largest, GOLDEN / "targets" / family) as engine:
        watch, found = run(engine, wishes)
        assert found == alone
        assert 0 < watch.most <= 2 * largest
        assert watch.together > 1, "two of them fit, so two ran"
        assert watch.begun == [w.id for w in wishes], "in order"
        assert engine.scheduler.load == (0, 0)
        assert engine.state_bytes == 0


def test_without_a_budget_the_number_alone_decides() -> None:
    with opened(0) as engine:
        watch, _ = run(engine, [wish(8, 40, first=i, drafter="none") for i in range(6)])
        assert watch.together == 6
        assert watch.most > 0


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    with opened(0) as engine:
        enough = cost(engine, wish(100, 20))
    with opened(enough) as engine:
        assert len(list(engine.submit(wish(100, 20)))[-1].tokens) == 20
        with pytest.raises(RequestTooLarge, match="300 tokens and its answer") as refused:
            engine.submit(wish(300, 20))
        assert refused.value.needed == cost(engine, wish(300, 20)) > refused.value.budget == enough
        with pytest.raises(RequestTooLarge):
            engine.submit(wish(100, 3000))
        assert engine.scheduler.load == (0, 0)


def test_a_large_request_is_not_passed_for_ever_by_small_ones() -> None:
    small, large = [wish(8, 30, first=i, id=f"s{i}") for i in range(4)], wish(400, 30, id="large")
    with opened(0) as engine:
        budget = max(cost(engine, large), cost(engine, *small[:2]))
    with opened(budget) as engine:
        watch, _ = run(engine, [small[0], large, *small[1:]])
        assert watch.begun == ["s0", "large", "s1", "s2", "s3"]
        assert watch.most <= budget


def test_cancelled_and_waiting_requests_hold_nothing() -> None:
    with opened(0) as engine:
        budget = cost(engine, wish(200, 200))
    with opened(budget) as engine:
        first, second = engine.submit(wish(200, 200)), engine.submit(wish(200, 8, first=2))
        for event in first:
            if isinstance(event, Round):
                break
        assert engine.state_bytes == budget
        assert engine.scheduler.load == (1, 1)
        first.cancel()
        assert list(second)[-1].reason == "length"
        assert engine.state_bytes == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_covers_what_rows_really_take(family: str) -> None:
    """Full rows of unequal length in one batch, their drafters' contexts beside them."""
    real = [0]
    ended = threading.Semaphore(0)
    wishes = [wish(20 + 60 * i, 6, first=i, drafter="lookup" if i else "none") for i in range(3)]
    with opened(0, GOLDEN / "targets" / family) as engine:

        def hear(event: Event) -> None:
            state = engine.scheduler._batch.state
            if isinstance(event, Round) and state is not None:
                real[0] = max(real[0], sum(layer.nbytes for layer in state.layers))
            elif isinstance(event, Finished):
                ended.release()

        for one in wishes:
            engine.submit(one, hear)
        for _ in wishes:
            assert ended.acquire(timeout=60)
        assert 0 < real[0] <= cost(engine, *wishes)


def test_the_drafters_context_counts() -> None:
    with opened(0) as engine:
        path = GOLDEN / "drafters" / "dspark-qwen3"
        engine.add_drafter(engine.run_exclusive(lambda: load_drafter(path, engine.target, name="dspark")))
        plain, drafted = (cost(engine, wish(500, 20, drafter=d)) for d in ("none", "dspark"))
        ticket = engine.submit(wish(500, 20, drafter="dspark"))
        list(ticket)
        context = ticket._sequence.contexts["dspark"]
        assert drafted - plain >= context.nbytes > 0  # pyright: ignore[reportAttributeAccessIssue]


def test_neighbours_pay_for_the_longest() -> None:
    admission = Admission(tiny_llama())
    one, two = admission.need(100, 20, NONE), admission.need(1000, 20, NONE)
    assert admission.bytes([one, two]) == 2 * admission.bytes([two])
    assert admission.bytes([]) == 0
    drafting = admission.need(100, 20, Chain("lookup", (Lookup(),)))
    assert drafting.own > one.own


def test_a_window_layer_costs_the_same_at_any_length() -> None:
    windowed, full = Admission(tiny_llama(window=64)), Admission(tiny_llama())
    assert windowed.bytes([windowed.need(4000, 0, NONE)]) < full.bytes([full.need(4000, 0, NONE)])


def test_the_default_budget_always_holds_one_full_window() -> None:
    assert rows_budget(100, 40, 20, 10) == 40
    assert rows_budget(100, 90, 20, 10) == 10
    assert rows_budget(0, 90, 20, 10) == 0, "a machine that does not say how much memory it has"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_over_http_it_is_a_413_and_the_gauges_tell(path: str) -> None:
    with opened(1 << 20) as engine:
        live = Live(engine, Settings())
        try:
            limit = {"max_output_tokens": 3000} if path == "/v1/responses" else {"max_tokens": 3000}
            answer = live.http.post(path, json={"messages": [{"role": "user", "content": "x"}], "input": "x", **limit})
            assert answer.status_code == 413, answer.text
            assert "1.0 MB are there for running requests" in answer.json()["error"]["message"]
            assert live.gauge("state_bytes") == 0
            assert live.gauge("state_budget_bytes") == 1 << 20
            assert live.gauge("num_requests_waiting") == 0
        finally:
            live.close()

"""The HTTP layer over the real engine on tiny models: rows, drafters, seeds, log probabilities, cache, cancellation."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from live_server import Live

from engine.drafters.load import load_drafter
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from server.settings import Settings

GOLDEN = Path(__file__).parents[1] / "golden"
DRAFTERS = ("none", "lookup", "dspark", "lookup+dspark")


@pytest.fixture(scope="module")
def live() -> Any:
    options = Options(max_batch=4, cache=PrefixCache(64 << 20), chunk=64)
    engine = open_engine(GOLDEN / "targets" / "tiny-qwen3", name="tiny", options=options)
    path = GOLDEN / "drafters" / "dspark-qwen3"
    engine.add_drafter(engine.run_exclusive(lambda: load_drafter(path, engine.target, name="dspark")))
    engine.drafter = "lookup+dspark"
    server = Live(engine, Settings(keys=()))
    yield server
    server.close()
    engine.close()


def ask(live: Any, text: str = "Count to ten.", **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 48, "x_dspark": True, **fields}
    answer = live.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(found: dict[str, Any]) -> str:
    return found["choices"][0]["message"]["content"]


def together(jobs: list[Any]) -> list[Any]:
    """Run callables at once; their results in order."""
    results: list[Any] = [None] * len(jobs)

    def run(i: int) -> None:
        results[i] = jobs[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    for thread in threads:
        thread.join(60)
    return results


def test_o02_logprobs_do_not_depend_on_the_drafter(live: Any) -> None:
    lists = []
    for drafter in DRAFTERS:
        found = ask(live, logprobs=True, top_logprobs=5, drafter=drafter, draft_cap=None if drafter == "none" else 4)
        entries = found["choices"][0]["logprobs"]["content"]
        assert bytes(b for e in entries for b in e["bytes"]).decode(errors="replace").startswith(text_of(found)[:20])
        lists.append(entries)
    for other in lists[1:]:
        for a, b in zip(lists[0], other, strict=True):
            assert a["token"] == b["token"]
            assert a["logprob"] <= 0
            assert a["logprob"] == pytest.approx(b["logprob"], abs=1e-3)
            assert len(a["top_logprobs"]) == 5


def test_o04_a_seed_gives_the_same_text_alone_and_in_a_batch(live: Any) -> None:
    def seeded(seed: int, drafter: str) -> Any:
        return lambda: text_of(ask(live, temperature=1.0, seed=seed, drafter=drafter))

    alone = seeded(42, "none")()
    assert seeded(42, "none")() == alone
    assert together([seeded(42, d) for d in DRAFTERS]) == [alone] * 4
    assert together([seeded(42, "dspark"), seeded(1, "lookup"), seeded(2, "none"), seeded(3, "dspark")])[0] == alone


def test_p03_eight_staggered_requests_equal_their_solo_runs(live: Any) -> None:
    wishes: list[dict[str, Any]] = [
        {
            "text": f"Question {i}: " + "tell me more " * (3 * i % 7),
            "max_tokens": 12 + 9 * i % 50,
            "drafter": DRAFTERS[i % 4],
            **({"temperature": 0.8, "seed": i, "top_p": 0.9} if i % 3 == 1 else {}),
            **({"stop": ["e"]} if i == 5 else {}),
            **({"presence_penalty": 0.5, "frequency_penalty": 0.3} if i == 6 else {}),
        }
        for i in range(8)
    ]
    alone = [ask(live, **w) for w in wishes]
    before = live.gauge("generation_tokens_total")
    both = together([lambda w=w: ask(live, **w) for w in wishes])
    for one, other in zip(alone, both, strict=True):
        assert text_of(other) == text_of(one)
        assert other["choices"][0]["finish_reason"] == one["choices"][0]["finish_reason"]
        assert other["usage"]["completion_tokens"] == one["usage"]["completion_tokens"]
    assert live.gauge("generation_tokens_total") - before == sum(b["usage"]["completion_tokens"] for b in both)
    assert live.gauge("num_requests_running") == 0


def test_h03_speculation_counters_hold_on_the_real_engine(live: Any) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    def counters() -> dict[str, float]:
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(live.http.get("/metrics").text):
            for s in family.samples:
                if "spec_decode" in s.name and s.name.endswith("_total"):
                    key = s.name.removeprefix("dspark:spec_decode_num_")
                    found[key] = found.get(key, 0) + s.value
        return found

    before = counters()
    found = [ask(live, drafter="dspark", draft_cap=4, text=f"n {i}")["x_dspark"] for i in range(3)]
    after = counters()
    delta = {k: v - before.get(k, 0) for k, v in after.items()}
    assert delta["accepted_tokens_total"] == sum(f["accepted"] for f in found) > 0
    assert delta["draft_tokens_total"] == sum(f["drafted"] for f in found)
    assert delta["accepted_tokens_per_pos_total"] == delta["accepted_tokens_total"]


def test_p04_turns_reuse_the_prefix(live: Any) -> None:
    document = "A line of the document. " * 60
    first = ask(live, text=document, max_tokens=8)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] < 64
    messages = [
        {"role": "user", "content": document},
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "More."},
    ]
    second = ask(live, messages=messages, max_tokens=8)
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= len(document)
    fresh = ask(live, messages=messages, max_tokens=8)
    assert text_of(fresh) == text_of(second)


@pytest.mark.parametrize("family", ["tiny-nemotron_h", "tiny-qwen3"])
def test_p04_hybrid_and_plain_models_under_a_small_budget(family: str) -> None:
    """Turns, an edit in the middle, and more prefixes than fit: what is cached never changes the text."""
    cache = PrefixCache(1 << 20)
    options = Options(max_batch=2, cache=cache, chunk=64)
    with open_engine(GOLDEN / "targets" / family, options=options) as engine:
        server = Live(engine, Settings())
        try:
            document = "A line of the document. " * 16

            def turn(*texts: str, **fields: Any) -> tuple[str, int]:
                roles = ("user", "assistant") * len(texts)
                messages = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]
                found = ask(server, messages=messages, max_tokens=6, drafter="lookup", **fields)
                return text_of(found), found["usage"]["prompt_tokens_details"]["cached_tokens"]

            first, cold = turn(document)
            again, warm = turn(document)
            assert (again, cold) == (first, 0)
            assert warm > 0
            _, later = turn(document, first, "More.")
            assert later >= len(document) // 2
            edited = document[:200] + "EDIT" + document[204:]
            text, kept = turn(edited)
            assert kept <= 200 + 40, "nothing behind the edit"
            for i in range(5):
                turn(f"{i} " + "something else " * 30)
                assert cache.nbytes <= cache.budget
            stats = cache.stats()
            assert stats.evicted + stats.refused > 0
            cache.budget, budget = 0, cache.budget
            engine.run_exclusive(cache.clear)
            assert turn(edited) == (text, 0)
            cache.budget = budget
        finally:
            server.close()


def test_p01_p02_leaving_frees_rows_and_keeps_the_others_right(live: Any) -> None:
    import json
    import random
    import socket

    alone = text_of(ask(live, text="stay", max_tokens=60))
    chance = random.Random(3)

    def leave() -> None:
        body = json.dumps(
            {
                "messages": [{"role": "user", "content": "leave " * chance.randint(1, 200)}],
                "stream": True,
                "max_tokens": 3000,
            }
        ).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", live.port), timeout=30) as connection:
            connection.sendall(head.encode() + body)
            connection.recv(chance.randint(1, 2000))
            time.sleep(chance.random() * 0.2)

    results = together(
        [leave if i % 3 else (lambda: text_of(ask(live, text="stay", max_tokens=60))) for i in range(18)]
    )
    assert [r for r in results if r is not None] == [alone] * 6
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and live.engine.scheduler.load != (0, 0):
        time.sleep(0.05)
    assert live.engine.scheduler.load == (0, 0)
    assert live.gauge("num_requests_running") == 0 == live.gauge("num_requests_waiting")


def test_a_short_request_that_joins_two_long_ones_returns_first(live: Any) -> None:
    ends: dict[str, float] = {}

    def timed(name: str, tokens: int) -> Any:
        def run() -> None:
            ask(live, text=name, max_tokens=tokens, drafter="none", logit_bias={"258": -100, "256": -100})
            ends[name] = time.monotonic()

        return run

    together([timed("long one", 300), timed("long two", 300), timed("short", 10)])
    assert ends["short"] < min(ends["long one"], ends["long two"])


def test_n_choices_share_the_prompt(live: Any) -> None:
    found = ask(live, n=3, seed=11, temperature=1.0, text="share " * 40)
    texts = [c["message"]["content"] for c in found["choices"]]
    alone = [text_of(ask(live, seed=11 + i, temperature=1.0, text="share " * 40)) for i in range(3)]
    assert texts == alone


def test_tool_choice_and_schema_on_the_real_engine(live: Any) -> None:
    import json

    tool = {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "w": {"enum": ["a", "b"]}},
                "required": ["n", "w"],
            },
        },
    }
    for drafter in DRAFTERS:
        found = ask(live, tools=[tool], tool_choice="required", drafter=drafter, max_tokens=200)
        arguments = json.loads(found["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
        assert arguments["w"] in ("a", "b")
        assert 0 <= arguments["n"] <= 9
        assert found["choices"][0]["finish_reason"] == "tool_calls"


FAMILIES = ("tiny-qwen3_5", "tiny-nemotron_h", "tiny-lfm2", "tiny-gemma4", "tiny-muse_glimmer")


@pytest.mark.parametrize("family", FAMILIES)
def test_p03_every_layer_kind_keeps_rows_apart(family: str) -> None:
    """Greedy rows and seeded rows equal their solo runs, while others join, leave and are cancelled."""
    from engine.types import Request, Sampling

    with open_engine(GOLDEN / "targets" / family, options=Options(max_batch=4, chunk=16)) as engine:
        wishes = [
            Request(
                [(7 * i + 3 * j) % 250 for j in range(5 + 6 * i)],
                8 + 5 * (i % 3),
                Sampling(temperature=0.9, seed=i) if i % 2 else Sampling(),
                stop_ids=frozenset(),
                drafter="lookup" if i % 3 else "none",
                cap=3,
            )
            for i in range(8)
        ]
        alone = [ids_of(engine, w) for w in wishes]
        tickets = []
        for i, wish in enumerate(wishes):
            tickets.append(engine.submit(wish))
            if i % 3 == 2:
                engine.submit(Request([5] * 40, 50, stop_ids=frozenset())).cancel()
        assert [list(t)[-1].tokens for t in tickets] == alone


def ids_of(engine: Engine, request: Any) -> tuple[int, ...]:
    return list(engine.submit(request))[-1].tokens


@pytest.mark.parametrize("family", ["tiny-nemotron_h", "tiny-qwen3_5"])
def test_o43_pairs_of_any_lengths_on_recurrent_models(family: str) -> None:
    """Padding and neighbours must not touch a recurrent state; nor may a row that leaves in mid prefill."""
    from engine.types import Request

    def prompt(length: int) -> list[int]:
        return [(11 * length + 5 * j) % 250 for j in range(length)]

    def wish(length: int) -> Request:
        return Request(prompt(length), 5, stop_ids=frozenset(), drafter="lookup", cap=2)

    lengths = (1, 2, 4, 5, 11, 12)
    with open_engine(GOLDEN / "targets" / family, options=Options(max_batch=3, chunk=4)) as engine:
        alone = {n: ids_of(engine, wish(n)) for n in lengths}
        for a in lengths:
            for b in lengths:
                first, second = engine.submit(wish(a)), engine.submit(wish(b))
                engine.submit(Request(prompt(30), 5, stop_ids=frozenset())).cancel()
                assert list(first)[-1].tokens == alone[a], (a, b)
                assert list(second)[-1].tokens == alone[b], (a, b)


def test_o44_a_row_does_not_depend_on_its_neighbours(live: Any) -> None:
    def row() -> str:
        return text_of(ask(live, text="the row itself", max_tokens=30))

    alone = row()
    for neighbours in (["the row itself"] * 3, ["other", "quite different text", "zzz"]):
        jobs = [row, *(lambda n=n: text_of(ask(live, text=n, max_tokens=30)) for n in neighbours)]
        results = together(jobs)
        assert results[0] == alone
        if neighbours[0] == "the row itself":
            assert results == [alone] * 4


@pytest.mark.slow
def test_soak_with_cancels_stays_within_its_limits() -> None:
    """Many different prompts, some given up: the cache keeps to its budget, no row stays, memory is flat."""
    import os
    import random

    from engine.types import Request

    def resident() -> int:
        if not os.path.exists("/proc/self/statm"):
            return 0
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    chance = random.Random(4)
    cache = PrefixCache(1 << 20)
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", options=Options(max_batch=4, cache=cache, chunk=32)) as engine:
        before = 0
        for step in range(40):
            tickets = [
                engine.submit(Request([chance.randrange(250) for _ in range(chance.randint(2, 80))], 12))
                for _ in range(4)
            ]
            for ticket in tickets:
                if chance.random() < 0.4:
                    ticket.cancel()
            for ticket in tickets:
                list(ticket)
            assert cache.nbytes <= cache.budget
            if step == 20:
                before = resident()
        assert engine.scheduler.load == (0, 0)
        assert resident() - before < 24 << 20


class _Breaks:
    """A processor that fails in its fifth round, in one of its two calls."""

    needs_draft = True

    def __init__(self, where: str) -> None:
        self.where, self.rounds = where, 0

    def trim(self, drafts: Any) -> int:
        if self.where == "trim" and self.rounds >= 4:
            raise RuntimeError("broken")
        return len(drafts)

    def rows(self, logits: Any, drafts: Any) -> Any:
        self.rounds += 1
        if self.where == "rows" and self.rounds >= 5:
            raise RuntimeError("broken")
        return logits

    def commit(self, tokens: Any) -> None:
        pass


@pytest.mark.parametrize("where", ["trim", "rows"])
@pytest.mark.parametrize("family", ["tiny-qwen3", "tiny-nemotron_h"])
def test_a_row_that_fails_leaves_the_others_alone(family: str, where: str) -> None:
    from engine.types import Failed, Request

    def wish(i: int) -> Request:
        return Request([7 * i + 3, 9, 9, 9, 9], 30, stop_ids=frozenset(), drafter="lookup", cap=2)

    with open_engine(GOLDEN / "targets" / family, options=Options(max_batch=4)) as engine:
        alone = [ids_of(engine, wish(i)) for i in range(3)]
        tickets = [engine.submit(wish(0))]
        broken = engine.submit(
            Request([1] * 8, 40, stop_ids=frozenset(), processors=(_Breaks(where),), drafter="lookup")
        )
        tickets += [engine.submit(wish(i)) for i in (1, 2)]
        assert [list(t)[-1].tokens for t in tickets] == alone
        last = list(broken)[-1]
        assert isinstance(last, Failed)
        assert last.message == "broken"
        assert ids_of(engine, wish(0)) == alone[0]


def test_a_short_prompt_overtakes_a_long_one_that_is_being_read() -> None:
    from engine.types import Prefilled, Request

    ends: list[str] = []
    with open_engine(GOLDEN / "targets" / "tiny-nemotron_h", options=Options(max_batch=3, chunk=8)) as engine:

        def wish(length: int, first: int) -> Request:
            return Request([first, *[5, 9, 2, 7] * (length // 4)], 6, stop_ids=frozenset(), drafter="lookup")

        wishes = {"long": wish(800, 1), "short": wish(12, 2), "other": wish(16, 3)}
        alone = {name: ids_of(engine, w) for name, w in wishes.items()}
        found: dict[str, Any] = {}
        waited: dict[str, float] = {}
        done = threading.Event()

        def listener(name: str) -> Any:
            def listen(event: Any) -> None:
                if isinstance(event, Prefilled):
                    waited[name] = event.queued_ms
                if hasattr(event, "usage"):
                    ends.append(name)
                    found[name] = event.tokens
                    if len(ends) == 3:
                        done.set()

            return listen

        for name, one in wishes.items():
            engine.submit(one, listener(name))
        assert done.wait(60)
        assert found == alone
        assert ends[-1] == "long"
        assert waited["long"] > 0
        gone = engine.submit(wish(800, 4))
        engine.submit(wish(12, 5))
        gone.cancel()
        assert list(gone)[-1].reason == "cancel"
        assert ids_of(engine, wishes["short"]) == alone["short"]
        assert engine.scheduler.load == (0, 0)

"""How often a request wakes the event loop, and where its prompt is prepared."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

import pytest
from scripted import Script

from engine.types import Event, Finished, Piece, Prefilled, Prefilling, Source, Tokens, Usage
from server.generation.channel import Channel

READING: list[Event] = [Prefilling("r", 0, 9), Prefilling("r", 4, 9), Prefilled("r", 9, 0, 1.0)]
TEXT = Tokens("r", (Piece("x", Source.TARGET, 1, 9, 0),))


class CountingLoop:
    """Stands for the event loop; runs nothing."""

    def __init__(self) -> None:
        self.woken = 0

    def call_soon_threadsafe(self, work: Any) -> None:
        self.woken += 1
        work()


async def wakes(news: Literal["all", "first", "none"], given: list[Event]) -> tuple[int, list[Any]]:
    loop: Any = CountingLoop()
    channel = Channel(loop, news=news)
    listen = channel.listener(0, lambda event: None)
    seen: list[Any] = []
    for event in given:
        listen(event)
        if channel._ready.is_set():
            seen += await channel.get(1.0) or []
    return loop.woken, seen


@pytest.mark.parametrize(("news", "count"), [("all", 4), ("first", 2), ("none", 1)])
def test_only_those_who_show_progress_are_woken_for_it(news: Any, count: int) -> None:
    woken, seen = asyncio.run(wakes(news, [*READING, TEXT]))
    assert woken == count
    kinds = [type(event) for _, event in seen]
    assert kinds[-2:] == [Prefilled, Tokens], "nothing is lost, and the order stays"


@pytest.mark.parametrize("news", ["all", "first", "none"])
def test_an_end_always_wakes(news: Any) -> None:
    end = Finished("r", "cancel", Usage())
    woken, seen = asyncio.run(wakes(news, [READING[0], end]))
    assert woken >= 1
    assert seen[-1][1] is end


def test_a_burst_costs_one_wake_up() -> None:
    loop: Any = CountingLoop()
    channel = Channel(loop)
    channel._ready.set = lambda: None  # type: ignore[method-assign]  # nobody comes to read
    listen = channel.listener(0, lambda event: None)
    for _ in range(50):
        listen(TEXT)
    assert loop.woken == 1


@pytest.mark.parametrize(
    ("fields", "beside"),
    [
        ({"messages": [{"role": "user", "content": "short"}]}, False),
        ({"messages": [{"role": "user", "content": "long " * 1000}]}, True),
        ({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}, True),
    ],
)
def test_only_what_takes_long_is_prepared_beside_the_event_loop(start: Any, fields: Any, beside: bool) -> None:
    live = start(Script("ok"))
    names: list[str] = []
    real = live.app.service._prepared

    def prepared(*args: Any) -> Any:
        names.append(threading.current_thread().name)
        return real(*args)

    live.app.service._prepared = prepared
    assert live.http.post("/v1/chat/completions", json=fields).status_code == 200
    assert names[0].startswith("dspark-prepare") is beside


def test_prompts_are_prepared_one_at_a_time_wherever_that_is(start: Any) -> None:
    live = start(Script("ok"))
    service, at_once, most = live.app.service, [0], [0]
    real = service._prepared

    def prepared(*args: Any) -> Any:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        try:
            return real(*args)
        finally:
            at_once[0] -= 1

    service._prepared = prepared
    bodies = [{"messages": [{"role": "user", "content": "word " * (1 if i % 2 else 4000)}]} for i in range(8)]
    answers: list[int] = []

    def ask(body: Any) -> None:
        answers.append(live.http.post("/v1/chat/completions", json=body).status_code)

    threads = [threading.Thread(target=ask, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [200] * 8
    assert most[0] == 1

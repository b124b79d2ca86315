"""A live server on loopback around a scripted engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from live_server import Live
from scripted import ScriptedEngine

from server.settings import Settings

Start = Callable[..., Live]


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def run(play: Any = None, settings: Settings | None = None, *, engine: Any = None, **kwargs: Any) -> Live:
            live = Live(engine or ScriptedEngine(play, **kwargs), settings or Settings())
            stack.callback(live.close)
            return live

        yield run

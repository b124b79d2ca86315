"""Driving the app in tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from engine.config import Config
from tests.tui.fakes import FakeEngine, loader
from tui.app import ChatApp
from tui.options import Options


async def wait_until(pilot: Pilot[Any], done: Callable[[], bool], timeout: float = 40.0) -> None:
    """Pump the app until `done()`."""
    end = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < end, "the app did not get there"
        await asyncio.sleep(0.01)
        await pilot.pause()


def shown(app: ChatApp) -> str:
    """The text on the screen."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def type_text(pilot: Pilot[Any], text: str) -> None:
    app = pilot.app
    assert isinstance(app, ChatApp)
    app.main.composer.insert(text)
    await pilot.pause()


@asynccontextmanager
async def running(
    engine: FakeEngine | None = None, size: tuple[int, int] = (120, 36), **options: Any
) -> AsyncIterator[tuple[ChatApp, Pilot[Any], FakeEngine]]:
    """The app with a model loaded."""
    engine = engine or FakeEngine(manual=True)
    options.setdefault("loader", loader(engine))
    app = ChatApp(Options(options.pop("config", Config()), **options))
    async with app.run_test(size=size, notifications=True) as pilot:
        await wait_until(pilot, lambda: app.session.engine is not None)
        await pilot.pause()
        yield app, pilot, engine


async def ask(pilot: Pilot[Any], engine: FakeEngine, text: str) -> Any:
    """Send a message; the ticket that the engine got for it."""
    count = len(engine.tickets)
    await type_text(pilot, text)
    await pilot.press("enter")
    await wait_until(pilot, lambda: len(engine.tickets) > count)
    return engine.tickets[-1]

"""Typing always reaches the message, whatever had the keyboard before."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import FakeEngine, script
from tui.app import ChatApp
from tui.widgets.side_bar import PanelView
from tui.widgets.transcript.view import Transcript


async def answered(app: ChatApp, pilot: Pilot[Any], engine: FakeEngine, text: str) -> None:
    engine.tickets[-1].prefilled()
    engine.tickets[-1].say(*script(text))
    engine.tickets[-1].finish()
    await wait_until(pilot, lambda: not app.session.busy and text in shown(app))


async def test_after_another_branch_typing_goes_on() -> None:
    async with running() as (app, pilot, engine):
        await ask(pilot, engine, "question")
        await answered(app, pilot, engine, "old words")
        await pilot.press("alt+up", "r")
        await wait_until(pilot, lambda: len(engine.tickets) == 2)
        await answered(app, pilot, engine, "new words")
        await pilot.press("alt+up", "b")
        await wait_until(pilot, lambda: "old words" in shown(app))
        await pilot.press(*"behold")
        assert app.main.composer.text == "behold"
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.tickets) == 3)


async def panel(app: ChatApp, pilot: Pilot[Any]) -> None:
    app.query_one("#panel-rate", PanelView).focus()


async def click(app: ChatApp, pilot: Pilot[Any]) -> None:
    await pilot.click(Transcript, offset=(3, 8))


async def tab(app: ChatApp, pilot: Pilot[Any]) -> None:
    await pilot.press("tab")


async def nothing(app: ChatApp, pilot: Pilot[Any]) -> None:
    app.main.set_focus(None)


@pytest.mark.parametrize("away", [panel, click, tab, nothing])
async def test_what_is_typed_and_pasted_reaches_the_message_from_everywhere(away: Any) -> None:
    async with running() as (app, pilot, engine):
        await ask(pilot, engine, "question")
        await answered(app, pilot, engine, "some words")
        await away(app, pilot)
        await pilot.pause()
        assert not app.main.composer.has_focus
        await pilot.press(*"yes", "space", *"k")
        assert app.main.composer.text == "yes k"
        assert app.screen is app.main
        await away(app, pilot)
        await pilot.pause()
        (app.focused or app.screen).post_message(events.Paste(" pasted"))
        await pilot.pause()
        assert app.main.composer.text == "yes k pasted"


async def test_a_letter_that_is_none_of_the_block_cursor_leaves_it_and_is_text() -> None:
    async with running() as (app, pilot, engine):
        await ask(pilot, engine, "question")
        await answered(app, pilot, engine, "some words")
        await pilot.press("alt+up", "k")
        assert app.main.transcript.pointed is not None
        assert app.main.composer.text == ""
        await pilot.press("w", "k")
        assert app.main.transcript.pointed is None
        assert app.main.composer.text == "wk"

"""Long conversations: what is on the screen costs the same however much lies before it, and nothing moves by itself."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.selection import SELECT_ALL

from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import script
from tui.app import ChatApp
from tui.chat import Chat, Status, Turn
from tui.widgets.answer_view import AnswerView
from tui.widgets.window import MARGIN, edges, entry_at, wanted

TURNS = 200


def conversation(turns: int = TURNS) -> Chat:
    chat = Chat()
    for n in range(turns):
        turn = Turn(f"question {n} " + "asked at some length " * (n % 7))
        paragraphs = "\n\n".join(f"answer {n}.{i} " + "with words " * (n % 11) for i in range(1 + n % 4))
        for event in script(paragraphs, start=4):
            list(turn.answer.take(event))
        turn.answer.status = Status.DONE
        chat.turns.append(turn)
    return chat


async def opened(app: ChatApp, pilot: Pilot[Any], chat: Chat | None = None) -> Chat:
    chat = chat or conversation()
    app.controller.show(chat)
    await app.transcript.open(chat)
    await still(app, pilot)
    return chat


async def still(app: ChatApp, pilot: Pilot[Any]) -> None:
    """Wait until the window has moved where it must."""
    await pilot.pause()
    await wait_until(pilot, lambda: not app.transcript._moving)
    await pilot.pause()


def questions(app: ChatApp) -> list[int]:
    return [int(row.split("question ")[1].split()[0]) for row in shown(app).split("\n") if "› question " in row]


def arranged(app: ChatApp) -> int:
    """Widgets that a layout visits."""
    return len(app.screen._compositor.full_map)


async def test_a_layout_visits_no_more_widgets_after_two_hundred_turns() -> None:
    async with running(size=(120, 36)) as (app, pilot, engine):
        before = arranged(app)
        await opened(app, pilot)
        most = arranged(app)
        for share in (0.9, 0.6, 0.3, 0.0, 0.02, 0.5, 1.0):
            app.transcript.scroll_to(y=share * app.transcript.max_scroll_y, animate=False)
            await still(app, pilot)
            most = max(most, arranged(app))
            assert questions(app)
        ticket = await ask(pilot, engine, "and now")
        ticket.prefilled()
        ticket.say(*script("streamed words " * 200))
        await wait_until(pilot, lambda: not app._draining)
        assert app.transcript.following
        assert max(most, arranged(app)) < before + 110, "as many as five screens hold, whatever lies before them"


async def test_every_turn_is_there() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        await opened(app, pilot, conversation(24))
        seen = set(questions(app))
        while app.transcript.scroll_y > 0:
            app.transcript.scroll_relative(y=2 - app.transcript.size.height, animate=False)
            await still(app, pilot)
            seen |= set(questions(app))
        assert seen == set(range(24))


async def test_what_is_in_view_stays_while_the_window_moves() -> None:
    """Ten rows up, and the rest is as it was, row for row: mounting and unmounting moves nothing."""
    async with running(size=(100, 30)) as (app, pilot, _):
        await opened(app, pilot)
        lower = column(app)
        for _ in range(14):
            app.transcript.scroll_relative(y=-10, animate=False)
            await still(app, pilot)
            upper = column(app)
            assert upper[10:-1] == lower[:-11]
            lower = upper
        exact(app)


def column(app: ChatApp) -> list[str]:
    region = app.transcript.region
    return [row[: region.width - 1] for row in shown(app).split("\n")[region.y : region.bottom]]


def exact(app: ChatApp) -> None:
    """The spacers are as tall as what they stand for."""
    transcript = app.transcript
    rows = sum(entry.rows for entry in transcript._entries)
    assert transcript.virtual_size.height == max(rows + 1, transcript.size.height)
    starts = transcript._starts()
    for i in transcript.mounted:
        assert transcript._entries[i].widgets[0].virtual_region.y == starts[i] - 1


@pytest.mark.parametrize("width", [60, 100, 140])
async def test_heights_are_known_before_the_layout(width: int) -> None:
    async with running(size=(width, 30)) as (app, pilot, _):
        await opened(app, pilot)
        exact(app)
        await pilot.press(*["pageup"] * 5)
        await still(app, pilot)
        exact(app)


async def test_an_answer_streams_far_below_the_view() -> None:
    async with running(size=(100, 30)) as (app, pilot, engine):
        await opened(app, pilot)
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script("the beginning "))
        await wait_until(pilot, lambda: "the beginning" in shown(app))
        app.transcript.scroll_to(y=100, animate=False)
        await still(app, pilot)
        view, offset = column(app), app.transcript.scroll_offset.y
        turn = app.controller.chat.turns[-1]
        assert app.transcript.answer(turn) is None
        for i in range(20):
            ticket.say(*[e for e in script(f"\n\nmore {i}") if not hasattr(e, "drafted")])
        await wait_until(pilot, lambda: "new tokens" in shown(app))
        await still(app, pilot)
        assert app.transcript.scroll_offset.y == offset
        assert column(app) == view[: len(column(app))]  # the pill took the last row
        await pilot.press("ctrl+end")
        await wait_until(pilot, lambda: "more 19" in shown(app) and "new tokens" not in shown(app))
        ticket.say(*[e for e in script("\n\nthe last words") if not hasattr(e, "drafted")])
        await wait_until(pilot, lambda: "the last words" in shown(app))
        assert "the beginning" in app.transcript.answer(turn).answer.text  # type: ignore[union-attr]


async def test_folding_survives_leaving_the_view() -> None:
    chat = conversation(60)
    answer = chat.turns[0].answer
    answer.thought_ranges, answer.reply_ranges = [(0, 6)], [(6, len(answer.text))]
    async with running(size=(100, 30)) as (app, pilot, _):
        await opened(app, pilot, chat)
        app.transcript.toggle_thought(chat.turns[0])
        app.transcript.scroll_home(animate=False)
        await still(app, pilot)
        assert "▾ thought" in shown(app)
        app.transcript.toggle_thought(chat.turns[0])
        await pilot.press("ctrl+end")
        await still(app, pilot)
        assert app.transcript.answer(chat.turns[0]) is None
        app.transcript.scroll_home(animate=False)
        await still(app, pilot)
        assert "▸ thought" in shown(app)


async def test_a_selection_is_not_taken_off_the_screen() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        chat = await opened(app, pilot)
        view = app.transcript.answer(chat.turns[-1])
        assert view is not None
        app.screen.selections = {view: SELECT_ALL}
        text = app.screen.get_selected_text()
        app.transcript.scroll_relative(y=-200, animate=False)
        await still(app, pilot)
        assert text
        assert app.screen.get_selected_text() == text
        app.screen.clear_selection()
        app.transcript.scroll_to(y=500, animate=False)
        await still(app, pilot)
        assert not view.is_attached


async def test_a_resize_keeps_the_message_in_view() -> None:
    async with running(size=(120, 36)) as (app, pilot, _):
        await opened(app, pilot)
        app.transcript.scroll_to(y=600, animate=False)
        await still(app, pilot)
        before = questions(app)
        await pilot.resize_terminal(70, 36)
        await still(app, pilot)
        assert set(questions(app)) & set(before[:3])
        exact(app)


async def test_reveal_brings_any_turn_into_view() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        chat = await opened(app, pilot)
        for n in (0, 150, 20, 199):
            await app.transcript.reveal(chat.turns[n])
            await still(app, pilot)
            assert n in questions(app)
        exact(app)


async def test_a_search_jumps_to_what_was_found() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        chat = await opened(app, pilot, conversation(60))
        assert app.store is not None
        for turn in chat.turns:
            app.store.save(chat, turn)
        app.store.settle()
        await app.new_chat()
        await pilot.press("ctrl+s", *"answer 17.1")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.controller.chat.id == chat.id)
        await wait_until(pilot, lambda: "question 17 " in shown(app))


async def test_o58_three_hundred_kilobytes_open_while_keys_are_answered() -> None:
    """What is far from the view is not rendered."""
    chat = Chat()
    for n in range(100):
        turn = Turn(f"question {n}")
        for event in script(("Some **words** with `code` in them. " * 10 + "\n\n") * 8):
            list(turn.answer.take(event))
        turn.answer.status = Status.DONE
        chat.turns.append(turn)
    assert sum(len(t.answer.text) for t in chat.turns) > 280_000
    async with running(size=(120, 36)) as (app, pilot, _):
        begun = time.thread_time()
        await opened(app, pilot, chat)
        assert time.thread_time() - begun < 1.5
        assert "Some words with code" in shown(app)
        assert len(app.query(AnswerView)) < 12
        for key in ("x", "pageup", "pageup", "pagedown"):
            begun = time.thread_time()
            await pilot.press(key)
            await still(app, pilot)
            assert time.thread_time() - begun < 0.5  # a tenth of a second, on a machine that is five times slower
        assert app.composer.text == "x"


HEIGHTS = st.lists(st.integers(1, 60), max_size=300)


@given(HEIGHTS, st.floats(0, 1), st.integers(5, 60))
@settings(deadline=None)
def test_the_window_covers_the_view_and_no_more(heights: list[int], at: float, rows: int) -> None:
    starts = edges(heights)
    top = at * max(0, starts[-1] - rows)
    first, last = wanted(heights, top, rows)
    assert 0 <= first <= last <= len(heights)
    if heights:
        assert starts[first] <= max(0, top - MARGIN * rows)
        assert starts[last] >= min(starts[-1], top + (1 + MARGIN) * rows)
        assert starts[last] - starts[first] <= (2 * MARGIN + 1) * rows + 2 * max(heights)
        assert heights[first:last]
        assert starts[entry_at(starts, top)] <= top

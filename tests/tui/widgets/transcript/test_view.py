"""Long conversations: what is on the screen costs the same however much lies before it, and nothing moves by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.screen import Screen
from textual.selection import Selection

from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import script
from tui.app import ChatApp
from tui.conversation import importer
from tui.conversation.chat import Chat, Status, Turn
from tui.markdown.document import Document
from tui.widgets.transcript import items
from tui.widgets.transcript.line_view import PAD
from tui.widgets.transcript.view import Transcript
from tui.widgets.transcript.viewport import MARGIN, edges, entry_at, wanted

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
    app.session.show(chat)
    app.main.transcript.open(chat)
    await still(app, pilot)
    return chat


async def still(app: ChatApp, pilot: Pilot[Any]) -> None:
    """Wait until all is drawn."""
    await pilot.pause()
    await pilot.pause()


def questions(app: ChatApp) -> list[int]:
    return [int(row.split("question ")[1].split()[0]) for row in shown(app).split("\n") if "› question " in row]


def arranged(app: ChatApp) -> int:
    """Widgets that a layout visits."""
    return len(app.screen._compositor.full_map)


async def test_a_layout_visits_no_more_widgets_after_two_hundred_turns() -> None:
    async with running(size=(120, 36)) as (app, pilot, engine):
        await opened(app, pilot, conversation(12))
        few = arranged(app)
        await opened(app, pilot)
        assert arranged(app) == few
        for share in (0.9, 0.6, 0.3, 0.0, 0.02, 0.5, 1.0):
            app.main.transcript.scroll_to(y=share * app.main.transcript.max_scroll_y, animate=False)
            await still(app, pilot)
            assert arranged(app) == few
            assert questions(app)
        ticket = await ask(pilot, engine, "and now")
        ticket.prefilled()
        ticket.say(*script("streamed words " * 200))
        await wait_until(pilot, lambda: len(app.session.last.ticks) > 100 and not app.main.conversation.events.awake)
        assert app.main.transcript.following
        assert arranged(app) <= few + 1, "the composer may suggest something; the conversation adds nothing"


@dataclass
class Work:
    """What drawing did: answers parsed, rows drawn from lines, rows looked at, layouts of the screen."""

    parsed: int = 0
    drawn: int = 0
    lines: int = 0
    layouts: int = 0


def watched(monkeypatch: pytest.MonkeyPatch) -> Work:
    work = Work()

    def count(owner: type, name: str, field: str) -> None:
        real = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            setattr(work, field, getattr(work, field) + 1)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(Document, "settle", "parsed")
    count(Transcript, "draw", "drawn")
    count(Transcript, "paint_line", "lines")
    count(Screen, "_refresh_layout", "layouts")
    return work


@pytest.mark.parametrize("many", [60, pytest.param(TURNS, marks=pytest.mark.slow)])
async def test_a_page_costs_the_same_in_a_short_and_in_a_long_conversation(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """By what is done, not by the clock: never more than the view and the screen that comes near, nowhere a layout."""
    monkeypatch.setattr(items, "KEPT", 300)
    monkeypatch.setattr(items, "DRAWN", 100)
    work = watched(monkeypatch)
    page = 30
    async with running(size=(120, 36)) as (app, pilot, _):
        for turns in (20, many):
            await opened(app, pilot, conversation(turns))
            for resize in (False, True):
                if resize:
                    await pilot.resize_terminal(90, 36)
                    await still(app, pilot)
                for direction in (-1, 1):
                    before = -1.0
                    while app.main.transcript.scroll_y != before:
                        before = app.main.transcript.scroll_y
                        work.parsed = work.drawn = work.lines = work.layouts = 0
                        app.main.action_page(direction)
                        await still(app, pilot)
                        assert work.lines <= page
                        assert work.drawn <= page
                        assert work.parsed <= 2 * page // 3, "a turn has three rows at least"
                        assert not work.layouts
            held = [entry for entry in app.main.transcript.column if entry.answer is not None]
            assert sum(entry.rows for entry in held) < items.KEPT + 5 * page
            assert sum(len(entry.strips) for entry in app.main.transcript.column) < items.DRAWN + 5 * page
            await pilot.resize_terminal(120, 36)


async def test_a_page_that_was_seen_is_drawn_from_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    work = watched(monkeypatch)
    async with running(size=(120, 36)) as (app, pilot, _):
        await opened(app, pilot)
        for direction in (-1, 1):
            work.parsed = work.drawn = 0
            for _ in range(8):
                app.main.action_page(direction)
                await still(app, pilot)
            assert bool(work.drawn) == (direction < 0)
        assert not work.parsed


async def test_every_turn_is_there() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        await opened(app, pilot, conversation(24))
        seen = set(questions(app))
        while app.main.transcript.scroll_y > 0:
            app.main.transcript.scroll_relative(y=2 - app.main.transcript.size.height, animate=False)
            await still(app, pilot)
            seen |= set(questions(app))
        assert seen == set(range(24))


async def test_what_is_in_view_stays_while_the_window_moves() -> None:
    """Ten rows up, and the rest is as it was, row for row: mounting and unmounting moves nothing."""
    async with running(size=(100, 30)) as (app, pilot, _):
        await opened(app, pilot)
        lower = column(app)
        for _ in range(14):
            app.main.transcript.scroll_relative(y=-10, animate=False)
            await still(app, pilot)
            upper = column(app)
            assert upper[10:-1] == lower[:-11]
            lower = upper
        exact(app)


def column(app: ChatApp) -> list[str]:
    region = app.main.transcript.region
    return [row[: region.width - 1] for row in shown(app).split("\n")[region.y : region.bottom]]


def exact(app: ChatApp) -> None:
    """What is near the view is as high as it was said to be, and all of it has the height that the scrollbar shows."""
    transcript = app.main.transcript
    column = transcript.column
    assert transcript.virtual_size.height == 1 + sum(entry.rows for entry in column)
    first, last = wanted(column.starts, transcript.scroll_y, transcript.size.height)
    for entry in column.entries[first:last]:
        assert entry.user is not None
        assert entry.answer is not None
        assert entry.width == transcript.text_width
        assert entry.rows == entry.user.rows(entry.width) + entry.answer.rows(entry.width)


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
        app.main.transcript.scroll_to(y=100, animate=False)
        await still(app, pilot)
        view, offset = column(app), app.main.transcript.scroll_offset.y
        turn = app.session.chat.turns[-1]
        for i in range(20):
            ticket.say(*[e for e in script(f"\n\nmore {i}") if not hasattr(e, "drafted")])
        await wait_until(pilot, lambda: "new tokens" in shown(app))
        await still(app, pilot)
        assert app.main.transcript.scroll_offset.y == offset
        assert column(app) == view[: len(column(app))]  # the pill took the last row
        await pilot.press("ctrl+end")
        await wait_until(pilot, lambda: "more 19" in shown(app) and "new tokens" not in shown(app))
        ticket.say(*[e for e in script("\n\nthe last words") if not hasattr(e, "drafted")])
        await wait_until(pilot, lambda: "the last words" in shown(app))
        assert "the beginning" in app.main.transcript.answer(turn).answer.text  # type: ignore[union-attr]


async def test_folding_survives_leaving_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "KEPT", 0)
    chat = conversation(60)
    answer = chat.turns[0].answer
    answer.thought_ranges, answer.reply_ranges = [(0, 6)], [(6, len(answer.text))]
    async with running(size=(100, 30)) as (app, pilot, _):
        await opened(app, pilot, chat)
        app.main.transcript.toggle_thought(chat.turns[0])
        app.main.transcript.scroll_home(animate=False)
        await still(app, pilot)
        assert "▾ thought" in shown(app)
        app.main.transcript.toggle_thought(chat.turns[0])
        await pilot.press("ctrl+end")
        await still(app, pilot)
        assert app.main.transcript.answer(chat.turns[0]) is None
        app.main.transcript.scroll_home(animate=False)
        await still(app, pilot)
        assert "▸ thought" in shown(app)


async def test_a_selection_stays_wherever_the_view_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "KEPT", 0)
    async with running(size=(100, 30)) as (app, pilot, engine):
        chat = await opened(app, pilot)
        entry = app.main.transcript.column.of(chat.turns[199])
        assert entry is not None
        ticket = await ask(pilot, engine, "and now")
        ticket.prefilled()
        picked = Selection(Offset(PAD, entry.key(entry.above)), Offset(PAD + 6, entry.key(entry.above + 1)))
        app.screen.selections = {app.main.transcript: picked}
        text = app.screen.get_selected_text()
        assert text is not None
        assert text.startswith("answer 199.0")
        for y in (0, 300, 600):
            app.main.transcript.scroll_to(y=y, animate=False)
            await still(app, pilot)
            assert app.screen.get_selected_text() == text
        assert app.main.transcript.answer(chat.turns[199]) is None
        ticket.say(*script("streamed words " * 200))
        answer = app.session.chat.turns[-1].answer
        await wait_until(pilot, lambda: len(answer.text) > 2900 and not app.main.conversation.events.awake)
        assert app.screen.get_selected_text() == text


async def test_a_selection_takes_everything_between_its_ends() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        chat = await opened(app, pilot, conversation(60))
        first, last = (app.main.transcript.column.of(chat.turns[n]) for n in (3, 50))
        assert first is not None
        assert last is not None
        app.screen.selections = {
            app.main.transcript: Selection(Offset(PAD + 6, first.key(0)), Offset(PAD + 14, last.key(0)))
        }
        text = app.screen.get_selected_text()
        assert text is not None
        assert text.startswith("question 3 ")
        assert text.endswith("You › question")
        for n in range(4, 50):
            assert f"question {n} " in text
            assert f"answer {n}.{n % 4}" in text
        assert "tok/s" not in text, "figures are no part of it"


async def test_words_are_selected_with_the_mouse_and_drawn_so() -> None:
    async with running(size=(100, 30)) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "the question")
        ticket.prefilled()
        ticket.say(*script("漢字 and **bold** words"))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await still(app, pilot)
        row = next(y for y, text in enumerate(shown(app).split("\n")) if "bold" in text)
        await pilot.mouse_down(offset=(1, row))
        await pilot.hover(offset=(8, row))
        await pilot.mouse_up(offset=(8, row))
        await pilot.pause()
        assert app.screen.get_selected_text() == "漢字 and"
        mark = app.main.transcript.component("selection").bgcolor
        strip = app.main.transcript.render_line(row - app.main.transcript.region.y)
        assert "".join(s.text for s in strip if s.style is not None and s.style.bgcolor == mark) == "漢字 and"
        await pilot.click(offset=(3, row), times=2)
        await pilot.pause()
        assert app.screen.get_selected_text() == "You › the question\n\n漢字 and bold words"
        await pilot.click(offset=(3, row))
        await pilot.pause()
        assert not app.screen.get_selected_text()


async def test_an_answer_from_elsewhere_has_its_text_in_the_trace() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        await app.main.show_chat(
            app.library.keep(importer.parse('{"turns": [{"user": "q", "text": "some **text**"}]}'))
        )
        await pilot.press("f4", "f4")
        await wait_until(pilot, lambda: "raw trace" in shown(app) and "some **text**" in shown(app))


async def test_a_resize_keeps_the_message_in_view() -> None:
    async with running(size=(120, 36)) as (app, pilot, _):
        await opened(app, pilot)
        app.main.transcript.scroll_to(y=600, animate=False)
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
            app.main.transcript.reveal(chat.turns[n])
            await still(app, pilot)
            assert n in questions(app)
        exact(app)


async def test_a_search_jumps_to_what_was_found() -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        chat = await opened(app, pilot, conversation(60))
        assert app.library.store is not None
        for turn in chat.turns:
            app.library.store.save(chat, turn)
        app.library.store.settle()
        await app.main.show_chat(app.library.new())
        await pilot.press("ctrl+s", *"answer 17.1")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.chat.id == chat.id)
        await wait_until(pilot, lambda: "question 17 " in shown(app))


async def test_o58_three_hundred_kilobytes_open_while_keys_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is far from the view is not rendered; by what is done, not by the clock."""
    work = watched(monkeypatch)
    chat = Chat()
    for n in range(100):
        turn = Turn(f"question {n}")
        for event in script(("Some **words** with `code` in them. " * 10 + "\n\n") * 8):
            list(turn.answer.take(event))
        turn.answer.status = Status.DONE
        chat.turns.append(turn)
    assert sum(len(t.answer.text) for t in chat.turns) > 280_000
    async with running(size=(120, 36)) as (app, pilot, _):
        await opened(app, pilot, chat)
        assert work.parsed < 12
        assert "Some words with code" in shown(app)
        assert sum(entry.answer is not None for entry in app.main.transcript.column) < 12
        for key in ("x", "pageup", "pageup", "pagedown"):
            work.parsed = work.drawn = 0
            await pilot.press(key)
            await still(app, pilot)
            assert work.parsed < 4
            assert work.drawn <= 2 * app.size.height
        assert app.main.composer.text == "x"


HEIGHTS = st.lists(st.integers(1, 60), max_size=300)


@given(HEIGHTS, st.floats(0, 1), st.integers(5, 60))
def test_the_window_covers_the_view_and_no_more(heights: list[int], at: float, rows: int) -> None:
    starts = edges(heights)
    top = at * max(0, starts[-1] - rows)
    first, last = wanted(starts, top, rows)
    assert 0 <= first <= last <= len(heights)
    if heights:
        assert starts[first] <= max(0, top - MARGIN * rows)
        assert starts[last] >= min(starts[-1], top + (1 + MARGIN) * rows)
        assert starts[last] - starts[first] <= (2 * MARGIN + 1) * rows + 2 * max(heights)
        assert heights[first:last]
        assert starts[entry_at(starts, top)] <= top

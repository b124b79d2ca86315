"""The block cursor, and looking again at the tokens under it."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import FakeEngine, script
from tui.app import ChatApp
from tui.screens.inspector import InspectorScreen

ANSWER = "First paragraph.\n\n```py\nx = 1\ny = 2\n```\n\n- one\n- two\n\nThe last words."


async def exchange(app: ChatApp, pilot: Pilot[Any], engine: FakeEngine, question: str, text: str) -> None:
    ticket = await ask(pilot, engine, question)
    ticket.prefilled()
    ticket.say(*script(text, start=len(ticket.request.prompt)))
    ticket.finish()
    await wait_until(pilot, lambda: not app.session.busy)
    await pilot.pause(0.1)


async def test_blocks_are_walked_and_copied() -> None:
    async with running() as (app, pilot, engine):
        await pilot.press("alt+up")
        assert "No message to select" in shown(app)
        await exchange(app, pilot, engine, "the question", ANSWER)
        copied = []
        await pilot.press("alt+up")
        for _ in range(5):
            await pilot.press("y")
            copied.append(app.clipboard)
            await pilot.press("up")
        assert copied == ["The last words.", "- one\n- two", "x = 1\ny = 2", "First paragraph.", "the question"]
        await pilot.press("Y")
        assert app.clipboard == ANSWER
        await pilot.press("escape")
        assert app.main.transcript.pointed is None
        assert app.main.composer.has_focus
        await pilot.press("y")
        assert app.main.composer.text == "y"


async def test_the_block_under_the_cursor_is_marked_and_in_view() -> None:
    async with running(size=(80, 24)) as (app, pilot, engine):
        for n in range(6):
            await exchange(
                app, pilot, engine, f"question {n}", f"answer {n}\n\n" + "\n\n".join(f"p{i}" for i in range(8))
            )
        pointed = None
        for n in range(24):
            await pilot.press("alt+up" if n == 0 else "k")
            await pilot.pause()
            pointed = app.main.transcript.pointed
            assert pointed is not None
            rows = marked(app)
            text = app.main.transcript.answer(pointed[0])
            assert text is not None
            said = pointed[0].user if pointed[1] is None else text.source(pointed[1])
            assert [row.strip() for row in rows] == [f"You › {said}" if pointed[1] is None else said]
        await pilot.press("alt+down")
        assert app.main.transcript.pointed != pointed


def marked(app: ChatApp) -> list[str]:
    """Rows in view that have the look of the block cursor."""
    transcript = app.main.transcript
    mark = transcript.component("pointed").bgcolor
    rows = [transcript.render_line(y) for y in range(transcript.size.height)]
    return [row.text for row in rows if all(s.style is not None and s.style.bgcolor == mark for s in row)]


async def test_edit_and_regenerate_in_the_middle_make_branches() -> None:
    async with running() as (app, pilot, engine):
        for n in range(3):
            await exchange(app, pilot, engine, f"question {n}", f"answer {n}")
        await pilot.press("alt+up", "up", "up", "up", "e")
        assert app.main.composer.text == "question 1"
        app.main.composer.load_text("another question")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.tickets) == 4)
        assert [t.user for t in app.session.chat.turns] == ["question 0", "another question"]
        engine.tickets[-1].prefilled()
        engine.tickets[-1].say(*script("another answer"))
        engine.tickets[-1].finish()
        await wait_until(pilot, lambda: not app.session.busy)
        assert "question 2" not in shown(app)
        await pilot.press("alt+up", "b")
        await wait_until(pilot, lambda: "answer 2" in shown(app))
        assert [t.user for t in app.session.chat.turns] == ["question 0", "question 1", "question 2"]
        await pilot.press("alt+up", "up", "up", "r")
        await wait_until(pilot, lambda: len(engine.tickets) == 5)
        assert [t.user for t in app.session.chat.turns] == ["question 0", "question 1"]


async def test_an_edit_that_is_left_changes_nothing() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "the question", "the answer")
        await pilot.press("alt+up", "e", "escape")
        assert app.main.composer.text == ""
        assert app.main.area.editing is None
        await ask(pilot, engine, "a new one")
        assert [t.user for t in app.session.chat.turns] == ["the question", "a new one"]


async def test_the_inspector_opens_at_the_block_and_says_why_there_is_no_p() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "q", ANSWER)
        await pilot.press("alt+up", "up", "up", "i")
        assert isinstance(app.screen, InspectorScreen)
        answer = app.session.chat.turns[0].answer
        assert "`" in answer.span_text(app.screen.index)
        assert "cannot look again" in shown(app)
        await pilot.press("escape")
        assert app.main.transcript.pointed is not None


class Looking(FakeEngine):
    """As if it could run something on a model thread."""

    def run_exclusive(self, work: Any) -> Any:
        return work()


async def test_the_inspector_shows_what_was_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.diagnostics import explain_round as module
    from engine.diagnostics.explain_round import Chance, Examination, Place

    asked: list[tuple[int, int]] = []

    def examine(engine: Any, before: Any, prompt: int, round_: Any, sampling: Any) -> Examination:
        asked.append((len(before), round_.start))
        places = []
        for i, token in enumerate(round_.tokens):
            draft = Chance(round_.drafted[i], 0.25, None, 0.125) if i < len(round_.drafted) else None
            places.append(
                Place(Chance(token, 0.5), draft, (Chance(token, 0.5, None, 0.0625),), 0.875 if draft else None)
            )
        return Examination(tuple(places))

    monkeypatch.setattr(module, "examine", examine)
    async with running(Looking(manual=True)) as (app, pilot, engine):
        await exchange(app, pilot, engine, "q", ANSWER)
        await pilot.press("alt+up", "i", "home", "down", "down", "down")
        await wait_until(pilot, lambda: "0.5000" in shown(app))
        assert asked
        assert all(a == b for a, b in asked)
        await pilot.press("down")
        await wait_until(pilot, lambda: "confidence 0.875" in shown(app))
        assert "0.1250" in shown(app)
        # Another prompt than the one that was answered is noticed.
        answer = app.session.chat.turns[0].answer
        assert answer.asked is not None
        from dataclasses import replace

        await pilot.press("escape")
        answer.asked = replace(answer.asked, ids=(), checksum=1)
        app.main.tell(app.main.host.inspect())
        await wait_until(pilot, lambda: "has changed since" in shown(app))


def test_what_was_asked_survives_in_the_store() -> None:
    from engine.types import Request, Sampling
    from tui.conversation.answer_json import dump_answer, load_answer
    from tui.conversation.chat import Answer, asked

    answer = Answer()
    answer.asked = asked(Request([1, 2, 3], sampling=Sampling(temperature=0.7, logit_bias={5: -1.0})))
    back = load_answer(dump_answer(answer)).asked
    assert back is not None
    assert (back.sampling, back.checksum) == (answer.asked.sampling, answer.asked.checksum)
    assert not back.ids

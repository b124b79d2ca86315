"""Chats in the app: saved, found again, branched; commands and the screens they open."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from engine.types import Sampling
from tests.tui.drive import ask, running, shown, type_text, wait_until
from tests.tui.fakes import FakeEngine, script
from tui.app import ChatApp
from tui.commands import registry as commands
from tui.conversation.chat import Status
from tui.screens.chats import SessionsScreen
from tui.screens.inspector import InspectorScreen


async def exchange(app, pilot, engine, text: str, answer: str):  # type: ignore[no-untyped-def]
    """One whole turn."""
    ticket = await ask(pilot, engine, text)
    ticket.prefilled()
    ticket.say(*script(answer))
    ticket.finish()
    await wait_until(pilot, lambda: not app.session.busy)
    await pilot.pause()
    return ticket


async def command(pilot, app, text: str) -> None:  # type: ignore[no-untyped-def]
    await type_text(pilot, text)
    await pilot.press("enter")
    await pilot.pause()


def told(app: ChatApp, words: str) -> bool:
    return any(words in note.message for note in app._notifications)


async def test_a_chat_is_continued_where_it_ended() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "first question", "First **answer**.")
        chat = app.session.chat.id
    async with running(continue_last=True) as (app, pilot, engine):
        await wait_until(pilot, lambda: "First answer." in shown(app))
        assert app.session.chat.id == chat
        ticket = await exchange(app, pilot, engine, "second", "Second.")
        assert "First **answer**." in "".join(chr(i) for i in ticket.request.prompt)
    async with running(resume=chat[:8]) as (app, pilot, engine):
        await wait_until(pilot, lambda: "Second." in shown(app))
        assert len(app.session.chat.turns) == 2


async def test_quitting_in_mid_answer_keeps_what_was_there() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script("half of it"))
        await wait_until(pilot, lambda: "half of it" in shown(app))
        await pilot.press("ctrl+q")
    async with running(continue_last=True) as (app, pilot, engine):
        await wait_until(pilot, lambda: "half of it" in shown(app))
        assert app.session.chat.turns[0].answer.status is Status.LOST


async def test_sessions_are_searched_opened_renamed_deleted_and_brought_back() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "about whales", "Whales sing.")
        await pilot.press("ctrl+n")
        await pilot.pause()
        assert "whales" not in shown(app)
        await exchange(app, pilot, engine, "about sums", "Two and two are four.")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.pause()
        assert "about whales" in shown(app)
        await pilot.press(*"sing")
        await pilot.pause()
        assert app.screen.query_one(OptionList).option_count == 1
        await pilot.press("ctrl+e", *"Sea", "enter")
        await pilot.pause()
        assert "Sea" in shown(app)
        app.screen.query_one(Input).value = "sing"
        await pilot.pause()
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert "Sea" not in shown(app)
        await pilot.press("ctrl+z")
        await pilot.pause()
        await pilot.press("enter")
        await wait_until(pilot, lambda: "Whales sing." in shown(app))


async def test_regenerated_and_edited_turns_are_branches() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "question", "Old answer.")
        await command(pilot, app, "/regen")
        await wait_until(pilot, lambda: len(engine.tickets) == 2)
        engine.tickets[-1].prefilled()
        engine.tickets[-1].say(*script("New answer."))
        engine.tickets[-1].finish()
        await wait_until(pilot, lambda: "New answer." in shown(app) and not app.session.busy)
        assert "Old answer." not in shown(app)
        await command(pilot, app, "/branch previous")
        await wait_until(pilot, lambda: "Old answer." in shown(app))
        await command(pilot, app, "/edit another question")
        await wait_until(pilot, lambda: len(engine.tickets) == 3)
        assert "another question" in "".join(chr(i) for i in engine.tickets[-1].request.prompt)


async def test_commands_are_completed_and_unknown_ones_are_named() -> None:
    async with running() as (app, pilot, engine):
        await type_text(pilot, "/dra")
        await pilot.pause()
        assert "/drafter [name]" in shown(app)
        await pilot.press("tab")
        assert app.main.composer.text == "/drafter "
        await type_text(pilot, "none")
        await pilot.press("enter")
        await pilot.pause()
        assert engine.drafter == "none"
        await command(pilot, app, "/regne")
        await wait_until(pilot, lambda: "Did you mean /regen?" in shown(app))
        await command(pilot, app, "/drafter dspark")
        await wait_until(pilot, lambda: "its vocabulary" in shown(app))
        assert not engine.tickets
        ticket = await ask(pilot, engine, "//usr is a folder")
        assert "/usr is a folder" in "".join(chr(i) for i in ticket.request.prompt)


async def test_settings_change_the_next_request() -> None:
    async with running() as (app, pilot, engine):
        for text in ("/set temp 0.7", "/set seed 42", "/set max-tokens 99", "/set logprobs 3", "/system be brief"):
            await command(pilot, app, text)
        await command(pilot, app, "/set temp banana")
        await wait_until(pilot, lambda: "a number" in shown(app))
        ticket = await ask(pilot, engine, "go")
        request = ticket.request
        assert request.sampling == Sampling(temperature=0.7, seed=42)
        assert (request.max_tokens, request.logprobs) == (99, 3)
        assert "<system>be brief" in "".join(chr(i) for i in request.prompt)


@pytest.mark.parametrize("ending", ["md", "json", "html", "svg"])
async def test_export(tmp_path: Path, ending: str) -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "a <b> [/q]", "The **answer** & more\n\n```py\nx = 1\n```\n")
        path = tmp_path / f"chat.{ending}"
        await command(pilot, app, f"/export {path}")
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text
        if ending == "md":
            assert "a <b> [/q]" in text
            assert "The **answer** & more" in text
        elif ending == "json":
            turn = json.loads(text)["turns"][0]
            assert sum(n for n, _ in turn["provenance"]) == len(turn["text"])
        elif ending == "html":
            assert "a &lt;b&gt; [/q]" in text
            assert 'class="draft"' in text
        else:
            assert text.startswith("<svg")
        path.write_text("somebody else's")
        await command(pilot, app, f"/export {path}")
        await wait_until(pilot, lambda: told(app, "is there already"))
        assert path.read_text() == "somebody else's"
        await command(pilot, app, f"/export replace {path}")
        assert path.read_text(encoding="utf-8") == text
        await command(pilot, app, f"/export {tmp_path}/chat.doc")
        await wait_until(pilot, lambda: told(app, "should end in"))


async def test_copy_goes_to_the_clipboard_as_markdown() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "q", "The **answer**\n\n```py\nx = 1\n```\n\n```\ny\n```\n")
        await pilot.press("alt+y")
        assert app.clipboard.startswith("The **answer**")
        await command(pilot, app, "/copy code 1")
        assert app.clipboard == "x = 1\n"
        await command(pilot, app, "/copy chat")
        assert "**You**" in app.clipboard


async def test_inspector_tells_each_token() -> None:
    async with running() as (app, pilot, engine):
        await exchange(app, pilot, engine, "q", "Some words that were drafted in blocks of three.")
        await command(pilot, app, "/inspect")
        assert isinstance(app.screen, InspectorScreen)
        answer = app.session.chat.turns[0].answer
        seen = set()
        for _ in answer.spans:
            await pilot.press("left")
            seen.add(shown(app).split("source      ")[1].split("\n")[0].strip().rstrip("│ "))
        assert any(s.startswith("draft: proposed") for s in seen)
        assert any("turned down" in s for s in seen)
        assert any("bonus" in s for s in seen)
        assert any("from the prompt" in s for s in seen)
        await pilot.press("escape")
        assert not isinstance(app.screen, InspectorScreen)


async def test_help_lists_every_key_and_command() -> None:
    from tui.keys import KEYS
    from tui.screens.help import help_text

    text = help_text({"view": "f12"}).plain
    assert "F12" in text
    assert "F4" not in text
    assert "repetition-penalty" in text
    assert all(key.help in text for key in KEYS)
    assert all(f"/{c.name}" in text for c in commands.COMMANDS)
    async with running() as (app, pilot, _):
        for key in ("f1", "question_mark"):
            await pilot.press(key)
            await pilot.pause()
            assert "Colours" in shown(app)
            await pilot.press("escape")
            await pilot.pause()
            assert len(app.screen_stack) == 1


async def test_every_command_answers_without_a_model_and_without_a_chat() -> None:
    async with running() as (app, pilot, _):
        for c in commands.COMMANDS:
            if c.name in ("quit", "export"):
                continue
            await command(pilot, app, f"/{c.name}")
            while len(app.screen_stack) > 1:
                await pilot.press("escape")
                await pilot.pause()
        assert not app.session.busy


async def test_history_search() -> None:
    async with running(FakeEngine()) as (app, pilot, engine):
        for text in ("alpha one", "beta", "alpha two"):
            await ask(pilot, engine, text)
            await wait_until(pilot, lambda: not app.session.busy)
        await type_text(pilot, "alpha")
        await pilot.press("ctrl+r")
        assert app.main.composer.text == "alpha two"
        await pilot.press("ctrl+r")
        assert app.main.composer.text == "alpha one"


async def test_a_newer_database_is_said_and_the_chat_goes_on(tmp_path: Path) -> None:
    data = Path(os.environ["DSPARK_HOME"]) / "data"
    data.mkdir(parents=True)
    with sqlite3.connect(data / "chats.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    async with running() as (app, pilot, engine):
        assert app.library.store is None
        await exchange(app, pilot, engine, "q", "Still works.")
        await wait_until(pilot, lambda: "Still works." in shown(app))


async def test_the_editor_writes_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nprintf 'two\\nlines' >> \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    async with running() as (app, pilot, _):
        await type_text(pilot, "first ")
        await pilot.press("ctrl+g")
        await pilot.pause()
        # The headless driver cannot hand the terminal over; the message must then be untouched.
        assert app.main.composer.text in ("first two\nlines", "first ")

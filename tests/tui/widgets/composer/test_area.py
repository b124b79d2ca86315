"""The message being written, in the app: chips, picking files, completion, the search, what waits to be sent."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from textual import events

from engine.config import Config
from engine.errors import UsageError
from tests.tui.drive import ask, running, shown, type_text, wait_until
from tests.tui.fakes import FakeEngine, loader, script
from tui.app import ChatApp
from tui.commands import arguments as choices
from tui.commands import registry as commands
from tui.commands.provider import SlashCommands
from tui.keys import EVERYWHERE, KEYS
from tui.options import Options
from tui.plain.chat import Plain
from tui.screens.chat import ChatScreen

LONG = "\n".join(f"line {i}" for i in range(214))


async def test_a_long_paste_is_a_chip_that_moves_and_goes_as_one_and_is_sent_whole() -> None:
    async with running() as (app, pilot, engine):
        composer = app.main.composer
        await type_text(pilot, "see ")
        composer.post_message(events.Paste(LONG.replace("\n", "\r\n")))
        await pilot.pause()
        assert composer.text == "see [pasted 214 lines]"
        assert composer.message == f"see {LONG}"
        await pilot.press("left")
        assert composer.cursor_location == (0, 4)
        await pilot.press("right", "x", "left", "ctrl+left")
        assert composer.cursor_location[1] in (0, 4, 22)
        composer.cursor_location = (0, 10)
        await pilot.pause()
        assert composer.cursor_location == (0, 4)
        composer.cursor_location = (0, 22)
        await pilot.press("backspace")
        assert composer.text == "see x"
        composer.post_message(events.Paste(LONG))
        await pilot.pause()
        ticket = await ask(pilot, engine, " end")
        assert f"see {LONG} endx" in "".join(chr(i) for i in ticket.request.prompt)
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.press("up")  # the history has the chip again
        assert composer.text == "see [pasted 214 lines] endx"
        composer.cursor_location = (0, 4)
        await pilot.press("tab")  # opens it
        assert composer.text == f"see {LONG} endx"


async def test_the_editor_gets_the_whole_text_and_chips_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async with running() as (app, pilot, _):

        async def edit_text(text: str) -> str:
            seen.append(text)
            return f"first\n{text}"

        monkeypatch.setattr(app.main.host, "edit_text", edit_text)
        app.main.composer.paste(LONG)
        await pilot.press("ctrl+g")
        await pilot.pause()
        assert seen == [LONG]
        assert app.main.composer.text == "first\n[pasted 214 lines]"


async def test_files_are_picked_by_a_few_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "two words.py").write_text("print('hi')\n")
    (tmp_path / ".hidden.py").write_text("")
    (tmp_path / "big.txt").write_text("x" * 300_000)
    monkeypatch.chdir(tmp_path)
    async with running() as (app, pilot, engine):
        await pilot.press(*"read @tw")
        await wait_until(pilot, lambda: "src/two words.py" in shown(app))
        assert ".hidden" not in shown(app)
        await pilot.press("enter")  # takes the file, sends nothing
        assert app.main.composer.text == 'read @"src/two words.py" '
        assert not engine.tickets
        ticket = await ask(pilot, engine, "now")
        sent = "".join(chr(i) for i in ticket.request.prompt)
        assert "src/two words.py:\n```py\nprint('hi')\n```" in sent
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await type_text(pilot, "and @big.txt")
        await pilot.press("escape", "enter")
        await wait_until(pilot, lambda: "256 KB go into a message" in shown(app))
        assert app.main.composer.text == "and @big.txt"


async def test_commands_and_their_words_are_completed() -> None:
    async with running() as (app, pilot, engine):
        await pilot.press(*"/dra")
        await pilot.pause()
        assert "/drafter" in shown(app)
        await pilot.press("tab")
        assert app.main.composer.text == "/drafter "
        await pilot.pause()
        assert "its vocabulary" in shown(app)  # those that cannot run say why
        await pilot.press("down", "down", "enter")
        await wait_until(pilot, lambda: engine.drafter == "lookup")
        assert app.main.composer.text == ""
        await pilot.press(*"/set thinking o")
        await pilot.pause()
        assert "/set thinking on" not in app.main.composer.text
        assert "thinking off" in shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "thinking off" not in shown(app)
        assert app.main.composer.text == "/set thinking o"


async def test_the_history_is_not_interrupted_by_completion() -> None:
    async with running() as (app, pilot, _):
        app.services.history.add("one")
        app.services.history.add("/help me")
        app.services.history.add("/stats")
        await pilot.press("up", "up", "up")
        assert app.main.composer.text == "one"


async def test_searching_what_was_sent_as_in_a_shell() -> None:
    async with running() as (app, pilot, _):
        for text in ("alpha one", "beta", "alpha two"):
            app.services.history.add(text)
        await type_text(pilot, "zz")
        await pilot.press("ctrl+a", "delete", "delete", "ctrl+r", *"alp")
        assert app.main.composer.text == "alpha two"
        assert "search: alp" in shown(app)
        await pilot.press("ctrl+r")
        assert app.main.composer.text == "alpha one"
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert "no message with: alp" in shown(app)
        await pilot.press("down", "enter")
        assert app.main.composer.text == "alpha two"
        assert "search" not in str(app.main.composer.border_title)
        await pilot.press("ctrl+r", "escape")
        assert app.main.composer.text == "alpha two"
        assert app.main.composer.search is None


async def test_what_waits_is_shown_taken_back_and_returned_by_a_stop() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "one")
        ticket.prefilled()
        await type_text(pilot, "two\nlines")
        await pilot.press("enter")
        await pilot.pause()
        assert "queued: two (+1 lines)   ↑ takes it back" in shown(app)
        await pilot.press("up")
        assert app.main.composer.text == "two\nlines"
        assert app.session.queued is None
        assert "queued" not in shown(app)
        await type_text(pilot, " more")
        await pilot.press("enter")
        ticket.say(*script("Half"))
        await wait_until(pilot, lambda: "Half" in shown(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: not app.session.busy)
        assert app.main.composer.text == "two\nlines more"
        assert len(engine.tickets) == 1


async def test_a_message_may_wait_for_the_model_to_load_and_be_cancelled() -> None:
    async with running(FakeEngine()) as (app, pilot, _):
        app.session.queued = "waits"
        app.main.area.show_queue()
        await pilot.press("up", "ctrl+c")
        assert (app.main.composer.text, app.session.queued) == ("", None)


async def test_pasting_a_picture_or_text_from_the_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    from tui.terminal import clipboard

    engine = FakeEngine(manual=True)
    engine.spec.vision = True
    red = tmp_path / "red.png"
    Image.new("RGB", (8, 6), "red").save(red)
    monkeypatch.setattr(clipboard, "picture", red.read_bytes)
    async with running(engine) as (app, pilot, _):
        await pilot.press("ctrl+v")
        await wait_until(pilot, lambda: len(app.session.album.waiting) == 1)
        await wait_until(pilot, lambda: "8×6" in shown(app))
        await type_text(pilot, "/image clear")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "8×6" not in shown(app))
        await type_text(pilot, "/image paste")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(app.session.album.waiting) == 1)

        def nothing() -> bytes:
            raise UsageError("There is no picture in the clipboard.")

        monkeypatch.setattr(clipboard, "picture", nothing)
        monkeypatch.setattr(clipboard, "text", lambda: "words\x1b[2J")
        await pilot.press("alt+v")
        await wait_until(pilot, lambda: app.main.composer.text == "words")
        monkeypatch.setattr(clipboard, "text", lambda: None)
        await pilot.press("alt+v")
        await wait_until(pilot, lambda: "There is no picture" in shown(app))


async def test_a_long_message_is_folded_on_the_screen_and_whole_for_the_model() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, LONG)
        assert "line 213" in "".join(chr(i) for i in ticket.request.prompt)
        await pilot.pause()
        assert "… 206 more lines" in shown(app)
        assert "line 7" in shown(app)
        assert "line 8" not in shown(app)
        ticket.say(*script("An answer."))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.press("alt+up", "alt+up", "space")
        await wait_until(pilot, lambda: "line 20" in shown(app))
        await pilot.press("space")
        await wait_until(pilot, lambda: "… 206 more lines" in shown(app))


async def test_the_palette_has_the_same_commands() -> None:
    async with running() as (app, pilot, _):
        await pilot.press("ctrl+p")
        await pilot.pause(0.2)
        await pilot.press(*"think")
        await wait_until(pilot, lambda: "/think [on|off|auto|effort]" in shown(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.main.composer.text == "/think ")
        await wait_until(pilot, lambda: "answer at once" in shown(app))
        titles = [hit.text async for hit in SlashCommands(app.main).discover()]
        assert len(titles) == len(commands.COMMANDS)


async def test_words_of_every_command_can_be_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a chat.md").write_text("")
    plain = Plain(Options(Config(), loader=loader(FakeEngine())), io.StringIO(), "bare")
    async with running() as (app, _, __):
        for host in (app.main.host, plain):
            for command in commands.COMMANDS:
                for words in ("", "x", "session ", "/", "\x1b"):
                    for text, note in command.words_of(host, words) if command.words_of else ():  # type: ignore[arg-type]
                        assert isinstance(text, str) and isinstance(note, str)
    assert ("a chat.md", "") in choices.read(plain, "a")


def test_every_key_has_an_action() -> None:
    for key in KEYS:
        name = key.action.partition("(")[0]
        owner = ChatApp if key.id in EVERYWHERE or name.startswith("app.") else ChatScreen
        assert not name or hasattr(owner, f"action_{name.removeprefix('app.')}"), key.id

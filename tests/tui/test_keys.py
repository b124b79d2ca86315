"""The key table is the one place: the document is made from it, and nothing clashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine import paths
from tests.tui.album import settle, waiting
from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import FakeEngine, script
from tui.app import ChatApp
from tui.keys import KEYS, READING, pretty, table
from tui.settings.keymap import keymap

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "keys.md"


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == table()


def test_ids_and_keys_are_unique() -> None:
    ids = [key.id for key in (*KEYS, *READING)]
    keys = [k for key in KEYS for k in key.keys.split(",") if key.id != "complete"]
    assert len(set(ids)) == len(ids)
    assert len(set(keys)) == len(keys)
    assert all(keys)
    reading = [k for key in READING for k in key.keys.split(",")]
    assert len(set(reading)) == len(reading)


def test_keys_of_tmux_and_the_shell_are_left_alone() -> None:
    assert not {"ctrl+b", "ctrl+o", "ctrl+l"} & {k for key in KEYS for k in key.keys.split(",")}


def test_pretty() -> None:
    assert pretty("shift+tab") == "Shift+Tab"
    assert pretty("f4") == "F4"
    assert pretty("y,Y,up") == "y, Y, ↑"
    assert pretty("alt+up,alt+down") == "Alt+↑, Alt+↓"


def test_keys_are_mapped_by_id_and_may_change_places() -> None:
    assert keymap({"view": "f6", "panels": "F4, ctrl+x"}) == ({"view": "f6", "panels": "f4,ctrl+x"}, [])
    assert keymap({}) == ({}, [])


@pytest.mark.parametrize(("table", "says"), [
    ({"view": "f6"}, "view is left out: F6 belongs to panels"),
    ({"view": "ctrl+x", "panels": "ctrl+x"}, "panels is left out: Ctrl+X belongs to view"),
    ({"view": "f6", "panels": "enter"}, "panels is left out: Enter belongs to the message"),
    ({"nonsense": "f9"}, "there is no such id"), ({"send": "f9"}, "send is left out: F9 belongs to charts"),
    ({"send": "x"}, "x writes text"), ({"newline": "enter"}, "newline is left out: Enter belongs to send"),
    ({"send": "left"}, "edits the message"), ({"send": "space"}, "writes text"), ({"block-up": "up"}, "belongs to"),
    ({"block-copy": "f4"}, "F4 belongs to view"), ({"block-copy": "Y"}, "Y belongs to answer-copy"),
    ({"block-edit": "é"}, "“é” is no key"), ({"expand": "enter"}, "Enter belongs to send"),
    ({"view": 5}, "a key is written like"), ({"view": ""}, "“” is no key"), ({"view": "x"}, "x writes text"),
    ({"view": "f99"}, "“f99” is no key"), ({"view": "ctrl+\x1b[2J"}, "is no key"),
    ({"a\x1b[2Jb": "f9"}, "[keys] ab is left"),
])  # fmt: skip
def test_conflicts_and_mistakes_are_told_and_left_out(table: dict[str, Any], says: str) -> None:
    keys, notes = keymap(table)
    assert any(says in note for note in notes), notes
    for scope in ([key for key in KEYS if key.id != "complete"], [*(key for key in KEYS if key.action), *READING]):
        used = [k for key in scope for k in keys.get(key.id, key.keys).split(",")]
        assert len(set(used)) == len(used)
    assert all("\x1b" not in note and note.count(". ") == 0 for note in notes), "one sentence each"


def test_every_key_can_be_another_one() -> None:
    """With keys that nothing else has, no id is refused."""
    for key in (*KEYS, *READING):
        assert keymap({key.id: "ctrl+alt+9"}) == ({key.id: "ctrl+alt+9"}, [])
    changed = {"send": "ctrl+j", "newline": "enter", "block-copy": "Y", "answer-copy": "y", "block-inspect": "enter,I"}
    assert keymap(changed) == (changed, [])


async def running_with(keys: str, use: Any) -> None:
    paths.settings_file().parent.mkdir(parents=True, exist_ok=True)
    paths.settings_file().write_text(f"[keys]\n{keys}")
    async with running() as (app, pilot, engine):
        assert not app.wishes.notes
        await use(app, pilot, engine)


async def test_enter_and_the_new_line_change_places() -> None:
    async def use(app: ChatApp, pilot: Pilot[Any], engine: FakeEngine) -> None:
        assert "Alt+Enter sends · Enter new line" in shown(app)
        await pilot.press(*"one", "enter", *"two")
        assert app.main.composer.text == "one\ntwo"
        assert not engine.tickets
        await pilot.press("alt+enter")
        await wait_until(pilot, lambda: len(engine.tickets) == 1)
        assert app.session.chat.turns[0].user == "one\ntwo"
        engine.tickets[0].finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.press("ctrl+up")
        assert app.main.composer.text == "one\ntwo"
        await pilot.press("ctrl+r", *"on", "alt+enter")
        assert app.main.composer.search is None
        assert len(engine.tickets) == 1, "it takes what was found; a second one sends"

    await running_with('send = "alt+enter"\nnewline = "enter,ctrl+j"\nhistory-back = "ctrl+up"\n', use)


async def test_the_letters_of_the_block_cursor_are_others() -> None:
    async def use(app: ChatApp, pilot: Pilot[Any], engine: FakeEngine) -> None:
        ticket = await ask(pilot, engine, "the question")
        ticket.prefilled()
        ticket.say(*script("first\n\nsecond"))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.press("alt+up", "c")
        assert app.clipboard == "second"
        await pilot.press("p", "c")
        assert app.clipboard == "first"
        await pilot.press("Y")
        assert app.clipboard == "first\n\nsecond"
        await pilot.press("y", "k", "enter")
        assert app.clipboard == "first\n\nsecond"
        assert len(app.screen_stack) == 1, "what was Enter is another key now"
        await pilot.press("f1")
        await pilot.pause()

    await running_with('block-copy = "c"\nblock-previous = "p,up"\nblock-inspect = "ctrl+x"\n', use)


@pytest.mark.parametrize("width", [60, 80, 101, 120, 160])
async def test_the_key_row_shows_whole_keys_only(width: int) -> None:
    async with running(size=(width, 30)) as (app, pilot, _engine):
        await pilot.pause()
        keys = list(app.query("FooterKey"))
        seen = [key for key in keys if key.visible]
        assert seen == keys[: len(seen)], "the first ones, in their order"
        assert len(seen) >= 4
        assert all(key.region.right <= width for key in seen)
        room = width - seen[-1].region.right
        await pilot.resize_terminal(200, 30)
        await pilot.pause()
        assert all(key.visible for key in keys)
        assert len(seen) == len(keys) or keys[len(seen)].region.width > room, "one more would not have fitted"
        await pilot.resize_terminal(width, 30)
        await pilot.pause()
        assert [key for key in keys if key.visible] == seen


@pytest.mark.parametrize("width", [60, 61, 120])
async def test_the_key_row_rests_when_it_is_drawn(width: int) -> None:
    """Hidden keys have no place: whoever waits until all have one never ends, and takes a core."""
    async with running(size=(width, 18)) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "q")
        ticket.prefilled()
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        for key in ("f1", "escape", "f3", "escape"):
            await pilot.press(key)
            await settle(pilot)
            for _ in range(5):
                await pilot.pause()
                assert not waiting(app)

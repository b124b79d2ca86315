"""How the app behaves when something is odd: settings, memory of choices, faults."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine import config
from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import script
from tui.engine_api import Progress
from tui.markdown.document import Document
from tui.settings.preferences import Preferences
from tui.terminal import crash
from tui.widgets.transcript.placeholder import progress_text


def home(*parts: str) -> Path:
    return Path(os.environ["DSPARK_HOME"]).joinpath(*parts)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_a_fault_in_drawing_costs_the_markdown_of_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Document) -> int:
        raise ZeroDivisionError

    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        monkeypatch.setattr(Document, "settle", broken)
        ticket.say(*script("Some **bold** words"))
        await wait_until(pilot, lambda: "Some **bold** words" in shown(app))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)


async def test_choices_are_remembered() -> None:
    async with running() as (app, pilot, _):
        app.theme = "dspark-light"
        await pilot.press("f4", "f6")
        await pilot.pause()
    async with running() as (app, pilot, _):
        assert app.theme == "dspark-light"
        assert app.main.transcript.view == "markdown"
        assert "CALIBRATION" not in shown(app)


async def test_a_damaged_memory_is_no_obstacle() -> None:
    for text in ("{", "[]", '{"theme": 5, "view": "nonsense", "panels": "nonsense"}', '{"theme": "no-such-theme"}'):
        write(home("state", "app.json"), text)
        async with running() as (app, _, __):
            assert app.theme == "dspark-dark"


async def test_a_theme_that_is_not_there_is_named() -> None:
    async with running(theme="nope") as (app, pilot, _):
        assert app.theme == "dspark-dark"
        await wait_until(pilot, lambda: "There is no theme nope; /theme lists them." in shown(app))


def test_what_is_being_loaded_is_one_sentence() -> None:
    assert progress_text(Progress("loading smol"), 80).plain == "Loading smol …"
    assert progress_text(Progress("downloading smol", 1, 2), 80).plain.startswith("Downloading smol\n")


async def test_that_chats_are_not_saved_stands_in_the_conversation() -> None:
    write(home("data"), "a file where the folder should be")
    async with running() as (app, pilot, engine):
        app.clear_notifications()
        await pilot.pause()
        assert "⚠ Chats are not saved in this session" in shown(app)
        ticket = await ask(pilot, engine, "hello")
        ticket.prefilled()
        ticket.say(*script("Hi."))
        ticket.finish()
        await wait_until(pilot, lambda: "Hi." in shown(app))
        assert "⚠ Chats are not saved in this session" in shown(app), "also when there is something to lose"


async def test_keys_are_remapped_by_id_and_odd_entries_are_named() -> None:
    write(home("config", "config.toml"), '[keys]\nview = "f12"\nnonsense = "f10"\nquit = 5\n[app]\nmouse = false\n')
    async with running() as (app, pilot, _):
        await pilot.press("f12")
        assert app.main.transcript.view == "markdown"
        await pilot.press("f4")
        assert app.main.transcript.view == "markdown"
        assert app.wishes.mouse == "off"
        assert len(app.wishes.notes) == 2
        for note in ("nonsense is left out", "quit is left out"):
            await wait_until(pilot, lambda note=note: note in shown(app))


async def test_a_bad_theme_is_listed_and_not_fatal() -> None:
    write(home("config", "themes", "odd.toml"), "[colors]\nprimary = 'blue-ish'\n")
    async with running() as (app, pilot, _):
        await wait_until(pilot, lambda: "odd.toml" in shown(app))
        assert "odd" not in app.available_themes


def test_a_crash_leaves_a_report_without_the_chat(tmp_path: Path) -> None:
    try:
        raise ValueError("a fault")
    except ValueError as error:
        note = crash.report(error, tmp_path)
    (path,) = tmp_path.glob("crash-*.txt")
    assert str(path) in note
    assert "ValueError: a fault" in path.read_text()


def test_prefs_survive(tmp_path: Path) -> None:
    path = tmp_path / "state" / "app.json"
    Preferences(path).remember(theme="nord", view="trace", panels="off")
    back = Preferences(path)
    assert (back.theme, back.view, back.panels) == ("nord", "trace", "off")
    assert json.loads(path.read_text())["theme"] == "nord"


async def test_a_wrong_entry_of_the_settings_file_is_told_in_the_app() -> None:
    write(home("config", "config.toml"), 'top_p = 7\ntemperature = "hot"\nmystery = 1\n')
    async with running(config=config.read()) as (app, pilot, _):
        for said in ("`top_p` takes a number between 0 and 1, not 7", "'hot'", "there is no setting `mystery`"):
            await wait_until(pilot, lambda said=said: said in shown(app))

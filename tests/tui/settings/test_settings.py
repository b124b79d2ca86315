"""Settings and presets: said, changed, kept in the file, taken back. Without a screen but for the last."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine import config as declared
from engine import paths
from engine.config import Config
from engine.types import Finished, Usage
from tests.tui.drive import ask, running, shown, type_text
from tests.tui.fakes import FakeEngine
from tui.commands import registry as commands
from tui.conversation.session import ChatSession
from tui.settings import settings

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


class Host:
    """A front end without a screen."""

    def __init__(self, config: Config | None = None) -> None:
        self.session = ChatSession(config)
        self.session.engine = FakeEngine(manual=True)  # type: ignore[assignment]
        self.edited = ""

    async def edit_text(self, text: str) -> str | None:
        return self.edited or None

    async def do(self, text: str) -> str:
        host: Any = self
        return str(await commands.run(host, *commands.parse(text)))


def kept() -> dict[str, Any]:
    file = paths.settings_file()
    return tomllib.loads(file.read_text()) if file.exists() else {}


def test_the_document_is_the_schema() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == settings.document()


async def test_set_keeps_a_value_in_the_file_and_the_next_start_has_it() -> None:
    host = Host()
    assert "kept in config.toml" in await host.do("/set temperature 0.7")
    assert "kept" in await host.do("/set top-p=0.9")
    assert "kept" in await host.do("/set stop END of it")
    assert (host.session.effective.temperature, kept()["temperature"]) == (0.7, 0.7)
    again = declared.read()
    assert (again.temperature, again.top_p, again.stop) == (0.7, 0.9, ("END of it",))
    assert "back to its default" in await host.do("/set temperature default")
    assert "temperature" not in kept()
    assert host.session.effective.temperature == 0


async def test_set_for_this_session_only() -> None:
    host = Host()
    assert "in this session only" in await host.do("/set session temperature 0.7")
    assert host.session.effective.temperature == 0.7
    assert kept() == {}
    assert "cannot be set for this session only" in await host.do("/set session context 4096")
    assert "from the next start on, and kept" in await host.do("/set context 4096")
    assert kept() == {"context": 4096}


async def test_a_bad_value_names_the_key_the_value_and_what_is_allowed() -> None:
    host = Host()
    for text, says in (
        ("/set top-p 3", "top-p takes a number between 0 and 1, not 3"),
        ("/set temperature hot", "temperature takes a number between 0 and 5, not 'hot'"),
        ("/set kv-bits 5", "kv-bits takes 0, 4, 6, 8, not 5"),
        ("/set cap many", "cap takes a whole number between 0 and 64, auto, derived, full, not 'many'"),
        ("/set thinking perhaps", "thinking takes true or false, not 'perhaps'"),
        ("/set nonsense 1", "There is no setting nonsense; there are model, drafter"),
        ("/set tempreture 1", "Did you mean temperature?"),
        ("/sett", "Did you mean /set?"),
        ("/drafter lokup", "Did you mean lookup?"),
    ):
        assert says in await host.do(text)
    assert kept() == {}
    assert host.session.config == Config()


async def test_a_read_only_file_is_a_sentence_and_the_value_holds_for_the_session() -> None:
    file = paths.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text("seed = 1\n")
    file.chmod(0o444)
    host = Host()
    said = await host.do("/set top-k 5")
    assert "in this session only" in said
    assert "is read-only" in said
    assert "\n" not in said
    assert host.session.effective.top_k == 5
    assert kept() == {"seed": 1}


async def test_thinking_off_is_off_and_not_undecided() -> None:
    host = Host()
    engine: Any = host.session.engine
    engine.format.thinks = True
    assert "Thinking off" in await host.do("/think off")
    assert "Effort high" in await host.do("/think high")
    assert "off, effort high" in await host.do("/think")
    host.session.submit(host.session.begin("hello"), lambda event: None)
    assert engine.format.asked == (False, "high")
    assert "Thinking auto" in await host.do("/think auto")
    assert host.session.effective.thinking is None
    assert "/think takes on, off, auto, minimal" in await host.do("/think hard")
    engine.format.thinks = False
    assert "changes nothing here" in await host.do("/think on")
    await host.do("/set thinking off")
    assert kept() == {"thinking": False}


async def test_what_the_model_recommends_is_used_and_shown_as_such() -> None:
    host = Host(Config(top_k=5, sources={"top_k": "--top-k"}))
    engine: Any = host.session.engine
    engine.generation = {"do_sample": True, "temperature": 0.6, "top_k": 20}
    rows = {row.name: row for row in settings.rows(host.session.effective)}
    assert (rows["temperature"].value, rows["temperature"].source) == ("0.6", "the model")
    assert (rows["top-k"].value, rows["top-k"].source) == ("5", "--top-k")
    assert "temperature is 0.6 (the model)" in await host.do("/set temperature")
    host.session.submit(host.session.begin("hello"), lambda event: None)
    sent = engine.tickets[-1].request.sampling
    assert (sent.temperature, sent.top_k) == (0.6, 5)


async def test_the_system_prompt_can_be_edited() -> None:
    host = Host(Config(system="Be kind."))
    host.session.chat.system = "Be kind."
    assert "as it was" in await host.do("/system edit")
    host.edited = "Be\nbrief."
    await host.do("/system edit")
    assert host.session.chat.system == "Be\nbrief."
    assert "Be\nbrief." in await host.do("/system")
    await host.do("/system none")
    assert host.session.chat.system == ""


async def test_presets_are_saved_used_listed_and_deleted() -> None:
    host = Host(Config(top_p=0.9, sources={"top_p": "--top-p"}))
    assert "no preset" in await host.do("/preset")
    await host.do("/set session temperature 0.3")
    await host.do("/system Answer in one sentence.")
    await host.do("/drafter lookup")
    await host.do("/think off")
    assert "is kept" in await host.do("/preset save terse")
    assert kept()["presets"]["terse"] == {
        "temperature": 0.3, "top_p": 0.9, "system": "Answer in one sentence.", "thinking": False, "drafter": "lookup",
    }  # fmt: skip
    assert "settings of the start" in await host.do("/preset none")
    assert (host.session.effective.temperature, host.session.chat.system) == (0, "")
    await host.do("/drafter dflash")
    assert "Preset terse" in await host.do("/preset terse")
    config = host.session.effective
    assert (config.temperature, config.top_p, config.thinking) == (0.3, 0.9, False)
    assert host.session.chat.system == "Answer in one sentence."
    assert host.session.drafter == "lookup"
    assert (await host.do("/preset")).startswith("› terse  temperature 0.3")
    assert "is gone" in await host.do("/preset delete terse")
    assert "There is no preset terse" in await host.do("/preset terse")
    assert "There is no preset terse" in await host.do("/preset delete terse")


async def test_two_presets_do_not_mix() -> None:
    host = Host()
    file = paths.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text('[presets.a]\ntemperature = 0.9\nsystem = "A"\n[presets."b b"]\ntop_k = 7\ndrafter = "dspark"\n')
    await host.do("/preset a")
    said = await host.do("/preset b b")
    assert "dspark cannot run" in said
    config = host.session.effective
    assert (config.temperature, config.top_k, host.session.chat.system) == (0, 7, "")


@pytest.mark.parametrize(("text", "says"), [
    ("[presets.x]\ntop_p = 3\n", "The preset x: `top_p` takes a number between 0 and 1, not 3"),
    ("[presets.x]\ncontext = 3\n", "has an entry `context`; it can hold"), ("presets = 3\n", "There is no preset x"),
    ("[presets]\nx = 3\n", "There is no preset x"),
])  # fmt: skip
async def test_a_preset_with_a_mistake_changes_nothing(text: str, says: str) -> None:
    file = paths.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text(text)
    host = Host()
    assert says in await host.do("/preset x")
    assert host.session.config == Config()
    assert await host.do("/preset")


async def test_names_of_presets() -> None:
    host = Host()
    for name in ("", "delete", "a\x1b[2Jb", "x" * 41):
        assert "A preset's name" in await host.do(f"/preset save {name}")
    for name in ("漢字", "👩‍👩‍👧‍👦 family", "a.b [c]", 'say "x"'):
        assert "is kept" in await host.do(f"/preset save {name}")
        assert f"Preset {name}" in await host.do(f"/preset {name}")
    assert len(kept()["presets"]) == 4


def test_a_variable_of_the_environment_is_said_to_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_TOP_K", "9")
    assert "DSPARK_TOP_K is set, and wins" in settings.put(ChatSession(declared.read()), "top-k", "5")


async def test_the_settings_screen_writes_the_file() -> None:
    async with running() as (app, pilot, engine):
        await pilot.press("f8")
        await pilot.pause()
        assert "temperature" in shown(app)
        await pilot.press(*"top-p", "enter")
        await pilot.pause()
        assert "top-p: a number between 0 and 1" in app.screen.query_one("#filter").placeholder  # type: ignore[attr-defined]
        await pilot.press("backspace", *"7", "enter")
        await pilot.pause()
        assert "top-p takes a number between 0 and 1, not 7" in shown(app)
        await pilot.press("backspace", *"0.5", "enter")
        await pilot.pause()
        assert "kept in config.toml" in shown(app)
        assert kept() == {"top_p": 0.5}
        await pilot.press(*"min-p", "enter", "backspace", *"0.1", "ctrl+t")
        await pilot.pause()
        assert "this session only" in shown(app)
        assert (app.session.effective.min_p, kept()) == (0.1, {"top_p": 0.5})
        await pilot.press(*"min-p", "enter", "escape", *"top-p", "ctrl+d")
        await pilot.pause()
        assert kept() == {}
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        await type_text(pilot, "/settings")
        await pilot.press("enter")
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        ticket = await ask(pilot, engine, "go")
        assert ticket.request.sampling.min_p == 0.1
        ticket.say(Finished("", "stop", Usage()))
        assert os.environ["DSPARK_HOME"]

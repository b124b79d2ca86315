"""Models in the app: the list with size and fit before anything is fetched, and the change from one to another."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from textual.widgets import OptionList, Static

from engine.config import Config
from engine.diagnostics.model_preview import Choice, DrafterOutlook, Outlook
from engine.errors import Cancelled, FetchError
from engine.types import Source
from tests.tui.drive import ask, running, shown, type_text, wait_until
from tests.tui.fakes import FakeDrafter, FakeEngine, FakeSpec, script
from tui.engine_api import Progress
from tui.screens.models import ModelsScreen
from tui.widgets.task_row import TaskRow

GB = 10**9
HERE = Choice("fake-135m", "Fake 135M", 93_000_000, "embedded", ("dspark", "lookup"))
OTHER = Choice("other-1b", "Other 1B", 2 * GB, "hub", ("lookup",))
BROKEN = Choice("half-7b", "", 3 * GB, "hub", (), missing=2)
DRAFTER = Choice("some/dspark", "", GB, "hub", (), "a drafter, which goes with its model")
FAR = Choice("far-4b", "Far 4B", drafters=("dspark", "dflash", "lookup"))
BIG = Choice("big-70b", "Big 70B")

OUTLOOKS = {
    "other-1b": Outlook(
        "other-1b", True, 2 * GB, memory=3 * GB, weights=2 * GB, context=32768, room=20 * GB,
        drafters=(DrafterOutlook("dspark", "x/y", False, "This drafter knows 32000 words, but the model 49152."),
                  DrafterOutlook("lookup")),
    ),
    "far-4b": Outlook("far-4b", False, fetch=4 * GB, memory=6 * GB, weights=4 * GB, context=8192, room=20 * GB),
    "big-70b": Outlook("big-70b", False, fetch=40 * GB, memory=80 * GB, room=20 * GB,
                       trouble="This model needs 74.5 GB and this machine has 18.6 GB for it."),
}  # fmt: skip


@dataclass
class FakeModels:
    """`gate` holds a load back; `fail` is what it ends with; `beside`: whether both have room."""

    beside: bool = True
    fail: Exception | None = None
    gate: threading.Event | None = None
    asked: list[tuple[str, bool]] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    engines: dict[str, FakeEngine] = field(default_factory=dict)

    def choices(self) -> list[Choice]:
        return [BROKEN, HERE, OTHER, DRAFTER, FAR, BIG]

    def outlook(self, name: str, ask: bool, stop: Callable[[], bool]) -> Outlook:
        self.asked.append((name, ask))
        found = OUTLOOKS.get(name, Outlook(name, False))
        return found if ask or found.installed else Outlook(name, False)

    def prepare(self, config: Config, held: int, tell: Any, stop: Callable[[], bool]) -> bool:
        tell(Progress(f"downloading {config.model}", 1_400_000_000, 4_000_000_000))
        while self.gate is not None and not self.gate.is_set():
            if stop():
                raise Cancelled("The download of far-4b was stopped. The 2 of 5 finished files stay on disk (900 MB).")
            time.sleep(0.01)
        if self.fail is not None and self.beside:
            raise self.fail
        return self.beside

    def load(self, config: Config, tell: Any, stop: Callable[[], bool]) -> FakeEngine:
        name = config.model or "fake-135m"
        self.loaded.append(name)
        if self.fail is not None and name != "fake-135m":
            raise self.fail
        engine = FakeEngine(manual=True, spec=FakeSpec(name=name), drafters=[FakeDrafter("none", Source.TARGET)])
        engine.drafter = "none"
        self.engines[name] = engine
        return engine


def detail(app: Any) -> str:
    return str(app.screen.query_one("#detail", Static).render())


async def open_list(app: Any, pilot: Any) -> ModelsScreen:
    await pilot.press("f2")
    await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen._choices is not None)
    await pilot.pause()
    return app.screen


async def pick(app: Any, pilot: Any, name: str) -> None:
    """Highlight a line by filtering for it."""
    screen = await open_list(app, pilot)
    await pilot.press(*name)
    await wait_until(pilot, lambda: screen.current == name)


async def test_the_list_says_size_place_drafters_and_why_something_is_no_choice() -> None:
    async with running(models=FakeModels()) as (app, pilot, _):
        screen = await open_list(app, pilot)
        text = " ".join(shown(app).split())
        assert "› fake-135m Fake 135M · 93 MB · recent · dspark" in text
        assert "other-1b Other 1B · 2.0 GB" in text
        assert "half-7b interrupted, 2 files missing" in text
        assert "some/dspark 1.0 GB · a drafter, which goes with its model" in text
        assert "far-4b Far 4B · to fetch · dspark, dflash" in text
        options = screen.query_one(OptionList)
        names = [options.get_option_at_index(i).id for i in range(options.option_count)]
        assert names[0] == "fake-135m", "what was used before comes first"
        assert options.get_option("some/dspark").disabled
        await wait_until(pilot, lambda: "loaded" in detail(app))
        assert "its vocabulary has 32000 entries" in detail(app), "drafters of the loaded model, with reasons"


async def test_memory_and_drafters_of_an_installed_model_are_shown_before_it_is_loaded() -> None:
    models = FakeModels()
    async with running(models=models) as (app, pilot, _):
        await pick(app, pilot, "other-1b")
        await wait_until(pilot, lambda: "memory 3.0 GB of 20.0 GB" in detail(app))
        assert "32,768 tokens" in detail(app)
        assert "knows 32000 words" in detail(app)
        assert models.asked[-1] == ("other-1b", False), "the hub was not asked"


async def test_another_model_takes_over_and_the_chat_stays() -> None:
    models = FakeModels()
    async with running(models=models) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "first question")
        ticket.prefilled()
        ticket.say(*script("First answer."))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pick(app, pilot, "other-1b")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.engine is models.engines.get("other-1b"))
        await wait_until(pilot, lambda: engine.closed)
        assert "other-1b" in shown(app).split("\n")[0]
        assert "First answer." in shown(app)
        second = await ask(pilot, models.engines["other-1b"], "and now")
        assert "First answer." in "".join(chr(i) for i in second.request.prompt)
        assert app.session.chat.turns[-1].answer.model == "other-1b"
        assert app.main.loader.recent[:2] == ["other-1b", "fake-135m"]


async def test_size_and_fit_are_shown_before_a_download() -> None:
    models = FakeModels()
    async with running(models=models) as (app, pilot, engine):
        await pick(app, pilot, "far-4b")
        await wait_until(pilot, lambda: "Enter asks the hub" in detail(app))
        assert not [name for name, hub in models.asked if hub]
        await pilot.press("enter")
        await wait_until(pilot, lambda: "4.0 GB to fetch" in detail(app))
        assert "memory 6.0 GB of 20.0 GB" in detail(app)
        assert not models.loaded
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.engine is models.engines.get("far-4b"))
        assert engine.closed


async def test_what_does_not_fit_cannot_be_chosen() -> None:
    models = FakeModels()
    async with running(models=models) as (app, pilot, _):
        await pick(app, pilot, "big-70b")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "this machine has 18.6 GB" in detail(app))
        await pilot.press("enter", "enter")
        await pilot.pause()
        assert isinstance(app.screen, ModelsScreen)
        assert not models.loaded


async def test_a_repository_can_be_typed() -> None:
    models = FakeModels()
    async with running(models=models) as (app, pilot, _):
        await open_list(app, pilot)
        await pilot.press(*"some/new-model")
        await wait_until(pilot, lambda: "from the hub" in shown(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: ("some/new-model", True) in models.asked)


async def test_the_old_model_answers_during_a_download_and_cancel_says_what_is_kept() -> None:
    models = FakeModels(gate=threading.Event())
    async with running(models=models) as (app, pilot, engine):
        assert app.main.loader.switch("far-4b") is None
        await wait_until(pilot, lambda: "downloading far-4b" in shown(app))
        assert "1400 of 4000 MB" in shown(app)
        ticket = await ask(pilot, engine, "still there?")
        ticket.prefilled()
        ticket.say(*script("Still here."))
        ticket.finish()
        await wait_until(pilot, lambda: "Still here." in shown(app))
        assert "is being loaded" in (app.main.loader.switch("other-1b") or "")
        await open_list(app, pilot)
        await wait_until(pilot, lambda: "Ctrl+X stops it" in shown(app))
        await pilot.press("ctrl+x")
        await wait_until(pilot, lambda: app.main.loader.manager.job is None)
        assert not app.query_one(TaskRow).display
        await wait_until(pilot, lambda: any("2 of 5 finished files stay" in n.message for n in app._notifications))
        assert app.session.engine is engine
        assert not engine.closed


async def test_a_failure_is_a_sentence_and_the_old_model_is_still_there() -> None:
    models = FakeModels(fail=FetchError("The hub has no such model."))
    async with running(models=models) as (app, pilot, engine):
        await type_text(pilot, "/model far-4b")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "The hub has no such model. fake-135m is still there." in shown(app))
        assert app.session.engine is engine
        assert not engine.closed


async def test_where_both_have_no_room_the_old_one_goes_first_and_comes_back_after_a_failure() -> None:
    models = FakeModels(beside=False, fail=RuntimeError("Not enough memory."))
    async with running(models=models) as (app, pilot, engine):
        app.main.loader.switch("other-1b")
        await wait_until(pilot, lambda: models.loaded == ["other-1b", "fake-135m"])
        await wait_until(pilot, lambda: app.session.engine is models.engines["fake-135m"])
        assert engine.closed
        models.fail = None
        app.main.loader.switch("other-1b")
        await wait_until(pilot, lambda: app.session.engine is models.engines.get("other-1b"))
        assert models.engines["fake-135m"].closed


@pytest.mark.parametrize("beside", [True, False])
async def test_an_answer_is_finished_before_its_model_goes(beside: bool) -> None:
    models = FakeModels(beside=beside)
    async with running(models=models) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        app.main.loader.switch("other-1b")
        await pilot.pause(0.4)
        assert app.session.engine is engine
        assert not engine.closed
        ticket.say(*script("The whole answer."))
        ticket.finish()
        await wait_until(pilot, lambda: app.session.engine is models.engines.get("other-1b"))
        assert "The whole answer." in shown(app)
        assert engine.closed


async def test_unloading_gives_the_memory_back_and_the_next_message_loads_again() -> None:
    models = FakeModels()
    async with running(models=models) as (app, pilot, engine):
        await type_text(pilot, "/model unload")
        await pilot.press("enter")
        await wait_until(pilot, lambda: engine.closed)
        assert app.session.engine is None
        assert "fake-135m (unloaded)" in shown(app).split("\n")[0]
        await type_text(pilot, "hello again")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "fake-135m" in models.engines and bool(models.engines["fake-135m"].tickets))
        assert app.session.chat.turns[-1].user == "hello again"


async def test_nobody_holds_a_model_when_its_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    models = FakeModels()
    held: list[bool] = []
    async with running(models=models) as (app, pilot, _first):
        app.main.loader.switch("other-1b")
        await wait_until(pilot, lambda: app.main.loader.manager.job is None and app.session.engine is not None)
        await wait_until(pilot, lambda: app.session.engine is models.engines["other-1b"])
        gone = weakref.ref(models.engines.pop("other-1b"))

        def release() -> None:
            gc.collect()
            held.append(gone() is not None)

        monkeypatch.setattr("tui.conversation.model_manager.release_model_memory", release)
        await open_list(app, pilot)
        await pilot.press("ctrl+u")
        await wait_until(pilot, lambda: app.session.engine is None)
        await wait_until(pilot, lambda: held == [False])
        assert app.main.loader.manager.unloaded == "other-1b"


async def test_commands_that_make_no_sense_are_sentences() -> None:
    async with running(models=FakeModels()) as (app, _, _engine):
        assert await app.main.loader.command("stop") == "Nothing is being loaded."
        assert "loaded already" in (await app.main.loader.command("fake-135m") or "")
        await app.main.loader.unload()
        assert await app.main.loader.unload() == "No model is loaded."


async def test_names_from_elsewhere_stay_text() -> None:
    nasty = "[/x] \x1b[2J\u202e[bold"
    models = FakeModels()
    models.choices = lambda: [Choice(nasty, nasty, 1, "hub", (nasty,))]  # type: ignore[method-assign]
    models.outlook = lambda *_: Outlook(nasty, True, 1, trouble=nasty, note=nasty,  # type: ignore[method-assign]
                                        drafters=(DrafterOutlook(nasty, nasty, False, nasty),))  # fmt: skip
    async with running(models=models) as (app, pilot, engine):
        engine.drafters.append(FakeDrafter(nasty, available=False, reason=nasty))
        await open_list(app, pilot)
        await wait_until(pilot, lambda: "⚠ [/x]" in shown(app))
        assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) <= 0x9F for c in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, ModelsScreen), "what has trouble is not chosen"
        await pilot.press("escape")
        app.main.loader.switch(nasty)
        await wait_until(pilot, lambda: nasty in models.loaded)
        await wait_until(pilot, lambda: app.main.loader.manager.job is None)
        assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) <= 0x9F for c in shown(app))

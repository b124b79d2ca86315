"""F7: what races against what, the replay on one clock, and a verdict that was compared."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Static

from engine.errors import Cancelled, UnknownDrafter
from engine.types import Piece, Request, Source
from tests.tui.drive import ask, running, shown, type_text, wait_until
from tests.tui.fakes import script
from tests.tui.races import LIE, SAID, TIE, arm, race
from tui.screens.race import RaceScreen, columns_for, subtitle, text_at, verdict, wanted


class Racer:
    """Notes what it was asked, and gives a prepared result once `gate` opens."""

    def __init__(self, result: Any = None, error: Exception | None = None) -> None:
        self.result, self.error = result or race(), error
        self.gate = threading.Event()
        self.gate.set()
        self.request: Request | None = None
        self.names: list[str] = []

    def __call__(
        self, engine: Any, request: Request, names: Sequence[str], progress: Any, watch: Any, stop: Any
    ) -> Any:
        self.request, self.names = request, list(names)
        progress("dspark", 0.4)
        for text in ("so ", "far"):
            watch(1, [Piece(text, Source.DRAFT, 1, 0, 0)])
        while not self.gate.wait(0.01):
            if stop():
                self.error = Cancelled("The race was stopped.")
                raise self.error
        if self.error is not None:
            raise self.error
        return self.result


def prompt_of(racer: Racer) -> str:
    assert racer.request is not None
    return "".join(chr(i) for i in racer.request.prompt)


async def start(app: Any, pilot: Any, racer: Racer) -> RaceScreen:
    app.main.host.racer = racer
    await pilot.press("f7")
    await wait_until(pilot, lambda: isinstance(app.screen, RaceScreen))
    return app.screen


async def test_the_message_being_written_races_and_stays_unsent() -> None:
    racer = Racer()
    async with running() as (app, pilot, engine):
        await type_text(pilot, "explain [b]this[/b]")
        screen = await start(app, pilot, racer)
        await wait_until(pilot, lambda: screen.result is not None)
        assert prompt_of(racer) == "<user>explain [b]this[/b]"
        assert racer.names == ["none", "dflash", "lookup"], "plain, the one in use, then the others that can run"
        assert racer.request is not None
        assert (racer.request.max_tokens, racer.request.remember) == (96, False)
        assert "explain [b]this[/b]" in shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.main.composer.text == "explain [b]this[/b]"
        assert not engine.tickets


async def test_with_nothing_written_the_last_message_races_in_its_conversation() -> None:
    racer = Racer()
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "first")
        ticket.prefilled()
        ticket.say(*script("An answer."))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await start(app, pilot, racer)
        await wait_until(pilot, lambda: racer.request is not None)
        assert prompt_of(racer) == "<user>first"
        await pilot.press("escape")
        await type_text(pilot, "second")
        await start(app, pilot, racer)
        await wait_until(pilot, lambda: "second" in prompt_of(racer))
        assert prompt_of(racer) == "<user>first<assistant>An answer.<user>second"


async def test_the_replay_runs_on_one_clock_and_the_verdict_was_compared() -> None:
    async with running() as (app, pilot, _):
        await type_text(pilot, "go")
        screen = await start(app, pilot, Racer())
        await wait_until(pilot, lambda: screen.clock > 0.0)
        screen.playing = False
        screen.set_clock(0.0)
        screen.set_clock(600.0)
        await pilot.pause()
        plain, dspark, _lookup = screen.result.arms
        assert dspark.tokens_at(600.0) > plain.tokens_at(600.0)
        text = shown(app)
        assert f"{plain.tokens_at(600.0)} tok" in text
        assert f"{dspark.tokens_at(600.0)} tok" in text
        assert "0.6 of" in text
        await pilot.press("end")
        await pilot.pause()
        text = shown(app)
        assert "✓ identical token ids (28)" in text
        assert "2.00×" in text
        assert "over" in text
        await pilot.press("home")
        await pilot.pause()
        assert screen.clock == 0.0
        await pilot.press("space")
        await wait_until(pilot, lambda: screen.clock > 0.0)


async def test_leaving_stops_the_race() -> None:
    racer = Racer()
    racer.gate.clear()
    async with running() as (app, pilot, _):
        await type_text(pilot, "go")
        await start(app, pilot, racer)
        await wait_until(pilot, lambda: "40%" in shown(app))
        assert "the arms run one after another: dspark" in shown(app)
        await wait_until(pilot, lambda: "so far" in shown(app))
        assert "1 none" in shown(app) and "2 dflash" in shown(app), "who runs is seen before anybody is over"
        assert "2 tok" in shown(app)
        await pilot.resize_terminal(60, 24)
        await wait_until(pilot, lambda: "so far" in shown(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(racer.error, Cancelled))
        assert app.main.composer.has_focus


async def test_what_goes_wrong_is_a_sentence() -> None:
    async with running() as (app, pilot, engine):
        app.main.host.racer = Racer(error=UnknownDrafter("No drafter '[x]' is loaded; there are: none."))
        assert app.main.host.race("") is not None, "nothing to race about"
        await type_text(pilot, "go")
        assert "two to 4" in (app.main.host.race("none") or "")
        assert "two to 4" in (app.main.host.race("a,b,c,d,e") or "")
        assert app.main.host.race("none,[x]") is None
        await wait_until(pilot, lambda: "No drafter '[x]' is loaded" in shown(app))
        await pilot.press("escape")
        app.main.composer.load_text("")
        await ask(pilot, engine, "busy")
        assert "Stop the current answer" in (app.main.host.race("") or "")


@pytest.mark.parametrize(("size", "columns"), [((120, 36), 3), ((80, 24), 2), ((60, 20), 1)])
async def test_arms_stand_side_by_side_where_they_have_room(size: tuple[int, int], columns: int) -> None:
    async with running(size=size) as (app, pilot, _):
        await type_text(pilot, "go")
        screen = await start(app, pilot, Racer())
        await wait_until(pilot, lambda: screen.clock > 0.0)
        await pilot.press("end")
        await pilot.pause()
        views = [screen.query_one(f"#arm-{i}", Static) for i in range(3)]
        assert len({v.region.x for v in views}) == columns
        assert all(v.content_size.height > 0 and v.content_size.width > 10 for v in views)
        for view in views:
            assert view.region.right <= size[0]
            assert view.region.bottom <= size[1]
        await pilot.resize_terminal(120, 36)
        await pilot.pause(0.2)
        assert len({v.region.x for v in views}) == 3


def test_words_of_the_command() -> None:
    assert wanted("", ["none", "x"]) == (["none", "x"], 96)
    assert wanted("none,dspark:4 128", []) == (["none", "dspark:4"], 128)
    assert wanted("0", ["a", "b"]) == (["a", "b"], 2)


def test_columns() -> None:
    assert [columns_for(4, w) for w in (160, 120, 80, 60)] == [4, 2, 2, 1]


def test_the_text_at_a_moment_is_what_was_committed_by_then() -> None:
    one = arm("dspark", ms=60.0)
    for ms in (0.0, 60.0, 299.0, one.ms):
        said = "".join(piece.text for piece in one.pieces_at(ms))
        assert SAID.startswith(said)
        assert text_at(one, ms, 400, 20).plain == said.rstrip("\n") or text_at(one, ms, 400, 20).plain in said
    assert len(text_at(one, one.ms, 20, 3).plain.split("\n")) == 3
    sources = {span.style for span in text_at(one, one.ms, 400, 20).spans}
    assert {str(s) for s in sources} == {f"$source-{Source.DRAFT}", f"$source-{Source.TARGET}"}


def test_verdicts_are_told_apart() -> None:
    assert verdict(race()).plain == "✓ identical token ids (28)"
    assert verdict(replace(race(), busy=3.0)).plain.endswith(
        "⚠ other programs computed meanwhile: the rates mean little"
    )
    tie, lie = verdict(race(second=TIE)).plain, verdict(race(second=LIE)).plain
    assert tie == "≈ dspark(≤7), cap auto: first differs at token 18, logit gap 0.0042: a tie within rounding"
    assert "NOT a tie" in lie
    assert lie.startswith("✗")


def test_rates_count_decoding_only() -> None:
    result = race()
    first = result.arms[0]
    assert subtitle(result, first, first.ms).startswith(f"{first.tokens_per_s:.1f} tok/s · 28 tok")
    assert first.rate_at(0.0) == 0.0
    assert first.rate_at(first.ms) == pytest.approx(first.tokens_per_s)

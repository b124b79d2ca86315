"""Charts, calibration, doctor and log inside the app."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from engine import paths
from engine.diagnostics import doctor
from engine.errors import Cancelled
from tests.tui.drive import ask, running, shown, type_text, wait_until
from tests.tui.fakes import FakeEngine, script
from tui.commands.reports import tail
from tui.conversation import compare
from tui.screens.charts import ChartScreen
from tui.screens.text import TextScreen
from tui.widgets.side_bar import PANELS, PanelView
from tui.widgets.task_row import TaskRow


class Calibrator:
    """Waits at `gate`, then fails or is done."""

    def __init__(self, error: Exception | None = None) -> None:
        self.gate, self.error, self.calls = threading.Event(), error, 0

    def measure(self, *, force: bool, progress: Any, stop: Any) -> None:
        self.calls += 1
        progress("verify, width 8", 0.25)
        while not self.gate.wait(0.01):
            if stop():
                raise Cancelled("stopped")
        if self.error is not None:
            raise self.error


def calibrated(calibrator: Calibrator) -> FakeEngine:
    engine: Any = FakeEngine(manual=True)
    engine.calibrator = calibrator
    return engine


async def command(app: Any, pilot: Any, text: str) -> None:
    await type_text(pilot, text)
    await pilot.press("enter")
    await pilot.pause()


async def answered(app: Any, pilot: Any, engine: FakeEngine, text: str = "go") -> None:
    ticket = await ask(pilot, engine, text)
    ticket.prefilled()
    ticket.say(*script("some words that are said " * 8))
    ticket.finish()
    await wait_until(pilot, lambda: not app.session.busy)


# Charts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20)])
async def test_every_panel_as_a_chart(size: tuple[int, int]) -> None:
    async with running(size=size) as (app, pilot, engine):
        await answered(app, pilot, engine)
        await pilot.press("f9")
        await wait_until(pilot, lambda: isinstance(app.screen, ChartScreen))
        seen: list[str] = []
        for _ in PANELS:
            await pilot.pause()
            seen.append(app.screen.panel.id)
            first = str(app.screen.panel.draw(app.main.figures(), size[0] - 4)).split("\n")[0].strip()
            assert first[:20] in shown(app)
            await pilot.press("right")
        assert seen == [panel.id for panel in PANELS]
        await pilot.press("left", "escape")
        await pilot.pause()
        assert not isinstance(app.screen, ChartScreen)
        await pilot.press("f9")
        await wait_until(pilot, lambda: isinstance(app.screen, ChartScreen))
        assert app.screen.panel.id == PANELS[-1].id, "where it was left"


async def test_enter_on_a_focused_panel_and_a_click_make_it_large() -> None:
    async with running() as (app, pilot, engine):
        await answered(app, pilot, engine)
        app.query_one("#panel-rate", PanelView).focus()
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, ChartScreen))
        assert app.screen.panel.id == "rate"
        await pilot.press("escape")
        await pilot.click("#panel-positions")
        await wait_until(pilot, lambda: isinstance(app.screen, ChartScreen))
        assert app.screen.panel.id == "positions"


async def test_a_chart_follows_the_answer() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        events = script("some words that are said " * 30)
        ticket.say(*events[:20])
        assert app.main.host.chart("acc") is None
        await wait_until(pilot, lambda: isinstance(app.screen, ChartScreen))
        before = app.session.last.rounds
        ticket.say(*events[20:])
        await wait_until(pilot, lambda: f"rounds {app.session.last.rounds}" in shown(app))
        assert app.session.last.rounds > before


async def test_a_panel_that_does_not_exist_is_a_sentence() -> None:
    async with running() as (app, _, _engine):
        assert "There is no panel [x]" in (app.main.host.chart("[x]") or "")


async def test_compare_is_a_table_in_the_conversation() -> None:
    async with running() as (app, pilot, engine):
        await answered(app, pilot, engine)
        await command(app, pilot, "/compare")
        table = compare.table([turn.answer for turn in app.session.chat.turns])
        await wait_until(pilot, lambda: all(line in shown(app) for line in table.split("\n")[:2]))


# Calibration ----------------------------------------------------------------------------------------------------------


async def test_calibrating_shows_progress_and_what_follows_from_it() -> None:
    calibrator = Calibrator()
    engine: Any = calibrated(calibrator)
    async with running(engine) as (app, pilot, _):
        await command(app, pilot, "/calibrate")
        await wait_until(pilot, lambda: "calibrating: verify, width 8" in shown(app) and "25%" in shown(app))
        assert "/calibrate stop" in shown(app)
        assert "being measured" in (app.main.host.calibrate("") or "")
        engine.calibration = SimpleNamespace(curve=[(1, 134.0), (8, 156.0)], knee=8, cap=7, rate=12.3, plain=7.0)
        calibrator.gate.set()
        await wait_until(pilot, lambda: not app.query_one(TaskRow).display)
        await wait_until(pilot, lambda: "knee 8 · k=7 · ≈12 tok/s" in shown(app))
        assert any("draft length 7, about 12.3 tok/s" in n.message for n in app._notifications)


async def test_calibrating_can_be_stopped_and_can_fail() -> None:
    calibrator = Calibrator(RuntimeError("the device is [gone]"))
    async with running(calibrated(calibrator)) as (app, pilot, _):
        assert app.main.host.calibrate("stop") == "Nothing is being measured."
        app.main.host.calibrate("")
        await wait_until(pilot, lambda: calibrator.calls == 1)
        app.main.host.calibrate("stop")
        await wait_until(pilot, lambda: any("was stopped" in n.message for n in app._notifications))
        calibrator.gate.set()
        app.main.host.calibrate("")
        await wait_until(pilot, lambda: any("the device is [gone]" in n.message for n in app._notifications))
        assert not app.query_one(TaskRow).display


async def test_a_stale_calibration_is_amber() -> None:
    engine: Any = FakeEngine(manual=True)
    engine.calibration = SimpleNamespace(
        curve=[(1, 134.0)], date="2026-11-29", stale=True, reason="live rounds take +40 % of what was measured"
    )
    async with running(engine) as (app, pilot, _):
        await wait_until(pilot, lambda: "2026-11-29 · live rounds take" in shown(app))
        panel = app.query_one("#panel-calibration", PanelView)
        spans = [span for span in panel._shown.spans if str(span.style) == "$warning"]
        assert spans
        assert "live rounds take +40 %" in panel._shown.plain[spans[0].start : spans[0].end]


async def test_calibrating_waits_for_a_free_model() -> None:
    async with running() as (app, pilot, engine):
        assert "not loaded, or busy" in (app.main.host.calibrate("") or "")
        await ask(pilot, engine, "busy")
        assert "not loaded, or busy" in (app.main.host.calibrate("") or "")


# Doctor and log -------------------------------------------------------------------------------------------------------


async def test_doctor_shows_what_the_command_line_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [doctor.Fact("engine", "BLAS", "stock", False, "Slow: [no] tuned one was found.")]
    monkeypatch.setattr(doctor, "examine", lambda *_a, **_k: facts)
    async with running() as (app, pilot, _):
        await command(app, pilot, "/doctor")
        await wait_until(pilot, lambda: "Slow: [no] tuned one" in shown(app))
        from engine import __version__

        assert app.screen.text == doctor.report(facts, app.session.config, __version__)
        await pilot.press("escape")
        await pilot.pause()
        assert app.main.composer.has_focus


async def test_an_examination_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_a: object, **_k: object) -> list[doctor.Fact]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(doctor, "examine", broken)
    async with running() as (app, pilot, _):
        app.main.host.doctor()
        await wait_until(pilot, lambda: "The examination failed: the disk is gone" in shown(app))


async def test_the_log_is_shown_from_its_end() -> None:
    async with running() as (app, pilot, _):
        await command(app, pilot, "/log")
        await wait_until(pilot, lambda: "Nothing was written" in shown(app))
        await pilot.press("escape")
        file = paths.state() / "dspark.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(f"line {i} \x1b[2J" for i in range(1000)) + "\nthe last [line]\n")
        await command(app, pilot, "/log")
        await wait_until(pilot, lambda: isinstance(app.screen, TextScreen) and "the last [line]" in shown(app))
        assert "\x1b" not in shown(app)
        assert len(tail(file).split("\n")) == 400
    assert tail(paths.state() / "nowhere") == ""

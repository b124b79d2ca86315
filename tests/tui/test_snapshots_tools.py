"""What the screens of models, races, charts and reading look like. Look at a difference before you accept it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from engine.config import Config
from engine.diagnostics import doctor
from tests.tui.album import THEMES, Album
from tests.tui.drive import wait_until
from tests.tui.fakes import FakeEngine, loader
from tests.tui.races import TIE, race
from tests.tui.screens.test_models import FakeModels
from tests.tui.test_snapshots import FixedApp, converse
from tui.options import Options
from tui.screens.image import PictureScreen
from tui.screens.models import ModelsScreen
from tui.screens.race import RaceScreen
from tui.terminal.image_protocol import HalfBlocks

CURVES: Any = SimpleNamespace(
    curve=[(1, 134.0), (2, 143.0), (4, 149.0), (8, 156.0), (16, 206.0), (32, 306.0)],
    draft=[(1, 10.0), (3, 12.0), (7, 15.0)], knee=8, cap=7, rate=12.0, plain=7.1, speedup=1.69,
    date="2026-11-29", stale=True, reason="live rounds take +40 % of what was measured; /calibrate measures again",
)  # fmt: skip
FACTS = [
    doctor.Fact("system", "system", "Linux 6.1 x86_64"),
    doctor.Fact("engine", "memory", "16.0 GB"),
    doctor.Fact("engine", "BLAS", "stock", False, "Slow: no tuned one was found."),
    doctor.Fact("roofline", "memory bandwidth", "12.3 GB/s (measured now)"),
    doctor.Fact(
        "roofline",
        "fake-135m",
        "memory 12.3 GB/s · 540 MB a step · ceiling 22.8 tok/s · plain 7.1 (31 %), 0.53x of it with drafts: compute or "
        "structure limits it, not memory",
    ),
]


def tool_app(engine: FakeEngine) -> FixedApp:
    return FixedApp(Options(Config(), theme=THEMES[0], loader=loader(engine), models=FakeModels()))


async def test_models(album: Album) -> None:
    app = tool_app(FakeEngine(manual=True))
    async with album.scene(app) as pilot:
        await wait_until(pilot, lambda: app.session.engine is not None)
        await pilot.press("f2")
        await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen._choices is not None)
        await pilot.press("down")
        await wait_until(pilot, lambda: "memory 3.0 GB" in str(app.screen.query_one("#detail").render()))


async def test_race(album: Album) -> None:
    app = tool_app(FakeEngine(manual=True))
    async with album.scene(app) as pilot:
        await wait_until(pilot, lambda: app.session.engine is not None)
        app.main.host.racer = lambda *_: race(second=TIE)
        app.main.composer.insert("explain speculative decoding")
        await pilot.press("f7")
        await wait_until(pilot, lambda: isinstance(app.screen, RaceScreen) and app.screen.clock > 0.0)
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        screen.playing = False
        screen.set_clock(900.0)


@pytest.mark.parametrize("panel", ["rate", "calibration", "drafters"])
async def test_chart(album: Album, panel: str) -> None:
    engine: Any = FakeEngine(manual=True)
    engine.calibration = CURVES
    app = tool_app(engine)
    async with album.scene(app, panel) as pilot:
        await converse(pilot, engine)
        app.main.host.chart(panel)


async def test_doctor(album: Album, monkeypatch: pytest.MonkeyPatch) -> None:
    app = tool_app(FakeEngine(manual=True))
    monkeypatch.setattr(doctor, "examine", lambda *_a, **_k: FACTS)
    async with album.scene(app) as pilot:
        await wait_until(pilot, lambda: app.session.engine is not None)
        app.main.host.doctor()
        await wait_until(pilot, lambda: "BLAS" in getattr(app.screen, "text", ""))


async def test_picture(album: Album, tmp_path: Path) -> None:
    image = Image.new("RGB", (24, 16), "#3366cc")
    image.paste("#ffcc33", (12, 0, 24, 8))
    image.save(tmp_path / "flag.png")
    app = tool_app(FakeEngine(manual=True))
    async with album.scene(app) as pilot:
        await app.push_screen(PictureScreen([tmp_path / "flag.png"]))
        await wait_until(pilot, lambda: bool(app.screen.query(HalfBlocks)))

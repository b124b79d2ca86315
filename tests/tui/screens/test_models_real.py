"""A real model is fetched from a hub on loopback, taken up in the middle of a chat, and raced with its own drafters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, serving

from engine.config import Config
from engine.errors import Cancelled
from engine.hub.catalog import catalog
from tests.tui.drive import shown, type_text, wait_until
from tui.app import ChatApp
from tui.engine_api import Progress, default_loader
from tui.options import Options
from tui.screens.models import ModelsScreen
from tui.screens.race import RaceScreen

GOLDEN = Path(__file__).parents[2] / "golden" / "targets"
REPO = "someone/tiny-model"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    catalog.cache_clear()
    with serving() as fake:
        folder = GOLDEN / "tiny-qwen3"
        fake.files[REPO] = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        monkeypatch.setenv("HF_ENDPOINT", fake.address)
        yield fake
    catalog.cache_clear()


async def test_a_model_is_fetched_taken_up_and_raced(hub: FakeHub) -> None:
    app = ChatApp(Options(Config(model=str(GOLDEN / "tiny-lfm2"), max_tokens=12)))
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await wait_until(pilot, lambda: app.session.engine is not None, 120)
        first = app.session.engine
        await type_text(pilot, "one")
        await pilot.press("enter")
        await wait_until(pilot, lambda: bool(app.session.chat.turns) and not app.session.busy, 60)

        await pilot.press("f2")
        await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen._choices is not None)
        await pilot.press(*REPO)
        await wait_until(pilot, lambda: "from the hub" in shown(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: "to fetch" in shown(app) and "memory" in shown(app), 60)
        assert not any("model.safetensors" in r and r.startswith("GET") for r in hub.requests)
        assert app.session.engine is first
        await pilot.press("enter")
        await wait_until(
            pilot, lambda: app.session.engine not in (None, first) and app.main.loader.manager.job is None, 120
        )
        assert app.session.engine is not None, app.main.loader.manager.error
        assert app.session.engine.spec.name == REPO

        await type_text(pilot, "two")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(app.session.chat.turns) == 2 and not app.session.busy, 60)
        assert app.session.chat.turns[-1].answer.text
        assert not app.session.chat.turns[-1].answer.error

        await type_text(pilot, "three three three")
        await pilot.press("f7")
        await wait_until(pilot, lambda: isinstance(app.screen, RaceScreen) and app.screen.result is not None, 60)
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        assert screen.result is not None
        assert [arm.drafter for arm in screen.result.arms] == ["none", "lookup"]
        assert screen.result.identical
        await wait_until(pilot, lambda: "✓ identical token ids" in shown(app))
        for arm in screen.result.arms:
            assert "".join(piece.text for piece in arm.pieces_at(arm.ms)) == arm.text
        await pilot.press("escape")
        engine = app.session.engine
        assert await app.main.loader.unload() is not None
        with pytest.raises(Exception, match="closed"):
            engine.submit(Config().request([1]))


def test_a_load_is_ended_between_its_steps() -> None:
    before = {t for t in threading.enumerate() if t.name == "dspark-model"}
    steps: list[str] = []

    def tell(progress: Progress) -> None:
        steps.append(progress.text)

    with pytest.raises(Cancelled, match="was stopped"):
        default_loader(Config(model=str(GOLDEN / "tiny-lfm2")), lambda: "loading" in " ".join(steps))(tell)
    assert not any("checking" in step for step in steps)
    assert {t for t in threading.enumerate() if t.name == "dspark-model"} <= before

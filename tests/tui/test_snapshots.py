"""What the app looks like. Look at a difference before you accept it: `make snapshots` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from engine.config import Config
from engine.diagnostics.explain_round import Chance, Examination, Place
from engine.types import Round, Source
from tests.tui.drive import ask, wait_until
from tests.tui.fakes import FakeEngine, loader, script
from tui.app import ChatApp
from tui.options import Options

SIZES = {"120x36": (120, 36), "80x24": (80, 24), "60x20": (60, 20)}
THEMES = ("dspark-dark", "dspark-light", "ansi-dark")

ANSWER = """Speculative decoding lets a **small draft model** propose several tokens that the target then
verifies in *one* pass:

1. draft a block with `propose`
2. verify, and keep what agrees

```python
def accept(draft, target):
    return draft[: agree(draft, target)]
```

| width | ms |
|------:|---:|
| 1 | 134 |
| 8 | 156 |

結果は変わりません。 """
COPIED = "Speculative decoding lets a **small draft model** propose several tokens."


class FixedApp(ChatApp):
    """Without what differs from run to run: the time to the first token and a blinking cursor."""

    def on_ready(self) -> None:
        self.composer.cursor_blink = False

    def flush(self) -> None:
        if self.controller.chat.turns:
            self.controller.chat.turns[-1].answer.first_ms = 210.0
        super().flush()


def app(engine: FakeEngine, theme: str) -> FixedApp:
    return FixedApp(Options(Config(), theme=theme, loader=loader(engine)))


def conversation(engine: FakeEngine, *keys: str, width: int | None = None) -> Callable[[Pilot[Any]], Any]:
    async def before(pilot: Pilot[Any]) -> None:
        chat = pilot.app
        assert isinstance(chat, ChatApp)
        await wait_until(pilot, lambda: chat.controller.engine is not None)
        first = await ask(pilot, engine, "explain speculative decoding")
        first.prefilled()
        first.say(*script(ANSWER))
        first.finish()
        await wait_until(pilot, lambda: not chat.controller.busy)
        second = await ask(pilot, engine, "and copy the first line")
        second.prefilled(cached=200)
        second.say(*script(COPIED, source=Source.LOOKUP))
        second.finish()
        await wait_until(pilot, lambda: not chat.controller.busy and not chat._draining)
        await pilot.pause()
        await pilot.press(*keys)
        await settle(pilot)
        chat.clear_notifications()
        await settle(pilot)

    return before


async def settle(pilot: Pilot[Any]) -> None:
    """Wait until two looks at the screen, a moment apart, show the same. A blinking cursor never would."""
    for field in pilot.app.screen.query(Input):
        field.cursor_blink = False
    seen = ""
    for _ in range(60):
        await pilot.pause(0.1)
        now = re.sub(r"terminal-\d+", "", pilot.app.export_screenshot())
        if now == seen:
            return
        seen = now


everywhere = pytest.mark.parametrize(("size", "theme"), [(s, t) for s in SIZES for t in THEMES])


@everywhere
def test_conversation(snap_compare: Any, size: str, theme: str) -> None:
    engine = FakeEngine(manual=True)
    assert snap_compare(app(engine, theme), terminal_size=SIZES[size], run_before=conversation(engine))


@everywhere
def test_trace(snap_compare: Any, size: str, theme: str) -> None:
    engine = FakeEngine(manual=True)
    before = conversation(engine, "f4", "f4")
    assert snap_compare(app(engine, theme), terminal_size=SIZES[size], run_before=before)


@everywhere
def test_welcome(snap_compare: Any, size: str, theme: str) -> None:
    engine = FakeEngine(manual=True)

    async def before(pilot: Pilot[Any]) -> None:
        await wait_until(pilot, lambda: pilot.app.controller.engine is not None)  # type: ignore[attr-defined]
        await settle(pilot)

    assert snap_compare(app(engine, theme), terminal_size=SIZES[size], run_before=before)


@everywhere
def test_load_failure(snap_compare: Any, size: str, theme: str) -> None:
    def load(_: object) -> FakeEngine:
        raise RuntimeError("There are no weights in [/models/x]; download the model again.")

    failing = FixedApp(Options(Config(), theme=theme, loader=load))

    async def before(pilot: Pilot[Any]) -> None:
        await wait_until(pilot, lambda: bool(failing.load_error))
        await settle(pilot)

    assert snap_compare(failing, terminal_size=SIZES[size], run_before=before)


def examined(round: Round) -> Examination:
    """As if a model had been asked again."""
    places = []
    for i, token in enumerate(round.tokens):
        draft = Chance(round.drafted[i], 0.21, 0.17, 0.43) if i < len(round.drafted) else None
        best = tuple(Chance(65 + n, 0.5 / (n + 1), None, 0.4 / (n + 1)) for n in range(4))
        places.append(Place(Chance(token, 0.5, 0.62), draft, best, 0.71 if draft else None))
    return Examination(tuple(places))


SCREENS = {
    "help": ("f1",),
    "sessions": ("ctrl+s",),
    "drafters": ("f3",),
    "settings": ("f8",),
    "blocks": ("alt+up", "up"),
    "inspector": ("alt+up", "i", "down", "down"),
    "commands": ("/",),
}


@everywhere
@pytest.mark.parametrize("screen", SCREENS)
def test_screens(snap_compare: Any, monkeypatch: pytest.MonkeyPatch, size: str, theme: str, screen: str) -> None:
    monkeypatch.setattr("tui.screens.sessions.age", lambda then, now=None: "just now")
    monkeypatch.setattr("tui.hindsight.Hindsight.known", lambda self, round: examined(round))
    engine = FakeEngine(manual=True)
    before = conversation(engine, *SCREENS[screen])
    assert snap_compare(app(engine, theme), terminal_size=SIZES[size], run_before=before)

"""What the app looks like. Look at a difference before you accept it: `make snapshots` writes them anew."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from engine.config import Config
from engine.diagnostics.explain_round import Chance, Examination, Place
from engine.types import Round, Source
from tests.tui.album import SIZES, THEMES, Album, settle
from tests.tui.drive import ask, wait_until
from tests.tui.fakes import FakeEngine, loader, script
from tui.app import ChatApp
from tui.options import Options
from tui.screens.chat import ChatScreen

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
        self.main.composer.cursor_blink = False

    def get_default_screen(self) -> ChatScreen:
        view = super().get_default_screen().conversation
        flush = view.flush

        def fixed() -> None:
            if self.session.chat.turns:
                self.session.chat.turns[-1].answer.first_ms = 210.0
            flush()

        view.flush = fixed  # type: ignore[method-assign]
        return self.main


def app(engine: FakeEngine) -> FixedApp:
    return FixedApp(Options(Config(), theme=THEMES[0], loader=loader(engine)))


async def converse(pilot: Pilot[Any], engine: FakeEngine, *keys: str) -> None:
    """Two answers, and then the keys."""
    chat = pilot.app
    assert isinstance(chat, ChatApp)
    await wait_until(pilot, lambda: chat.session.engine is not None)
    first = await ask(pilot, engine, "explain speculative decoding")
    first.prefilled()
    first.say(*script(ANSWER))
    first.finish()
    await wait_until(pilot, lambda: not chat.session.busy)
    second = await ask(pilot, engine, "and copy the first line")
    second.prefilled(cached=200)
    second.say(*script(COPIED, source=Source.LOOKUP))
    second.finish()
    await wait_until(pilot, lambda: not chat.session.busy)
    await settle(pilot)
    await pilot.press(*keys)


async def test_conversation(album: Album) -> None:
    engine = FakeEngine(manual=True)
    async with album.scene(app(engine)) as pilot:
        await converse(pilot, engine)


async def test_trace(album: Album) -> None:
    engine = FakeEngine(manual=True)
    async with album.scene(app(engine)) as pilot:
        await converse(pilot, engine, "f4", "f4")


async def test_welcome(album: Album) -> None:
    async with album.scene(app(FakeEngine(manual=True))) as pilot:
        await wait_until(pilot, lambda: pilot.app.session.engine is not None)  # type: ignore[attr-defined]


async def test_load_failure(album: Album) -> None:
    def load(_: object) -> FakeEngine:
        raise RuntimeError("There are no weights in [/models/x]; download the model again.")

    failing = FixedApp(Options(Config(), theme=THEMES[0], loader=load))
    async with album.scene(failing) as pilot:
        await wait_until(pilot, lambda: bool(failing.main.loader.manager.error))


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


AFRESH = ("blocks", "inspector")
"""What these have in view depends on the size at which one got there."""


@pytest.mark.parametrize("screen", SCREENS)
async def test_screens(album: Album, monkeypatch: pytest.MonkeyPatch, screen: str) -> None:
    monkeypatch.setattr("tui.screens.chats.age", lambda then, now=None: "just now")
    monkeypatch.setattr("tui.conversation.explain.Explainer.known", lambda self, round: examined(round))
    for sizes in [[size] for size in SIZES] if screen in AFRESH else [list(SIZES)]:
        engine = FakeEngine(manual=True)
        async with album.scene(app(engine), screen, sizes) as pilot:
            await converse(pilot, engine, *SCREENS[screen])

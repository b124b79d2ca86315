"""F7 and /race: the same prompt through several drafters, then the replay. A mixin of the app."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import work

from engine.chat.prompt import build_request
from engine.drafters.registry import example
from engine.errors import Cancelled, DsparkError
from engine.types import Piece, Request
from tui.chat import Turn
from tui.screens.race import RaceScreen

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller
    from tui.widgets.composer import Composer

    Base = App[int]
else:
    Base = object

log = logging.getLogger("dspark.tui")

MOST = 4
TOKENS = 96
"""Length of a race; long enough for rates, short enough to be waited for."""

Watch = Callable[[int, Sequence[Piece]], None]
Racer = Callable[[Any, Request, Sequence[str], Callable[[str, float], None], Watch, Callable[[], bool]], Any]


def run_race(
    engine: Any,
    request: Request,
    names: Sequence[str],
    progress: Callable[[str, float], None],
    watch: Watch,
    stop: Callable[[], bool],
) -> Any:
    """`engine.diagnostics.race.race`, imported when it is wanted."""
    from engine.diagnostics.race import race

    return race(engine, request, names, progress=progress, watch=watch, stop=stop)


class Races(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        composer: Composer

        def say(self, text: str, severity: Any = "information") -> None: ...

    racer: Racer = staticmethod(run_race)

    def action_race(self) -> None:
        """F7: what is being written, else the last message."""
        sentence = self.start_race("")
        if sentence:
            self.say(sentence, "warning")

    def start_race(self, words: str) -> str | None:
        """`words`: drafters separated by commas, and how many tokens; both may be left out. Says why not."""
        controller = self.controller
        if controller.engine is None:
            return "The model is not loaded yet."
        if controller.busy:
            return "An answer is under way; Esc stops it, and then they can race."
        text = "" if self.composer.text.startswith("/") else self.composer.text.strip()
        if not text and not controller.chat.turns:
            return "Write something first: the race is about what is in the message line, or the last message."
        names, tokens = wanted(words, default_arms(controller))
        if not 2 <= len(names) <= MOST:
            return f"A race needs two to {MOST} drafters, such as /race {example()}."
        screen = RaceScreen(text or controller.chat.turns[-1].user, names)
        self.push_screen(screen)
        self._race(screen, text, names, tokens)
        return None

    @work(thread=True, group="race", exit_on_error=False)
    def _race(self, screen: RaceScreen, text: str, names: Sequence[str], tokens: int) -> None:
        def progress(what: str, done: float) -> None:
            # From the model thread, which must not wait for the screen.
            screen.post_message(screen.Progressed(what, done))

        def watch(arm: int, pieces: Sequence[Piece]) -> None:
            screen.post_message(screen.Said(arm, pieces))

        try:
            request = question(self.controller, text)
            request = replace(request, max_tokens=min(request.max_tokens, tokens), remember=False)
            result = self.racer(self.controller.engine, request, names, progress, watch, lambda: screen.left)
        except Cancelled:
            return
        except Exception as error:  # the edge of a race: the screen says it as a sentence
            log.warning("the race failed: %s", error, exc_info=None if isinstance(error, DsparkError) else error)
            self.call_from_thread(screen.call_later, screen.fail, str(error) or type(error).__name__)
        else:
            if not screen.left:
                self.call_from_thread(screen.call_later, screen.show, result)  # after it is composed


def question(controller: Controller, text: str = "") -> Request:
    """A request for `text` in this conversation, which stays as it is; without text for its last message."""
    engine, chat = controller.engine, controller.chat
    assert engine is not None
    asked = replace(chat, turns=[*chat.turns, Turn(text)]) if text else chat
    messages, pictures = controller.album.place(asked.messages(), engine.spec.name, engine.spec.vision)
    return build_request(engine, messages, controller.config, pictures).request


def default_arms(controller: Controller) -> list[str]:
    """Plain decoding, the drafter in use, then the others that can run."""
    able = [d.name for d in controller.drafters if d.available]
    order = ["none", controller.drafter, *(n for n in able if "+" not in n), *able]
    return [name for name in dict.fromkeys(order) if name in able][:MOST]


def wanted(words: str, default: list[str]) -> tuple[list[str], int]:
    """(drafters, tokens) of `none,lookup,dspark:4 128`."""
    names, tokens = default, TOKENS
    for word in words.split():
        if word.isdigit():
            tokens = max(2, int(word))
        else:
            names = [name for name in word.split(",") if name]
    return names, tokens

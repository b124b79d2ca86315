"""A race: what each arm says while it runs, then all side by side on one clock, with rates and the checked verdict.

How a race is run is the business of the function that it is given; it runs on a worker of this screen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from engine.chat.terminal_safe import clean, one_line
from engine.errors import Cancelled, DsparkError
from tui.conversation.session import ChatSession
from tui.conversation.stats import bar
from tui.screens.overlay import Overlay

if TYPE_CHECKING:
    from engine.diagnostics.race import Arm, RaceResult
    from engine.types import Piece, Request

log = logging.getLogger("dspark.tui")

FRAME = 1 / 12
STEP = 1000.0
"""Milliseconds that an arrow key moves the clock."""
COLUMN = 36
"""An arm narrower than this goes below the others instead of beside them."""
MOST = 4
TOKENS = 96
"""Length of a race; long enough for rates, short enough to be waited for."""
Watch = Callable[[int, Sequence["Piece"]], None]
Run = Callable[[Callable[[str, float], None], Watch, Callable[[], bool]], "RaceResult"]
"""(progress, what an arm says, whether to stop) → what came of it."""
HINT = "Space pauses · ← → a second · Home again · End to the end · Esc leaves"


class RaceScreen(Overlay[None]):
    """Shows what each arm says as it runs, until `show` brings the result; then replays it."""

    DEFAULT_CSS = """
    RaceScreen { background: $background; }
    RaceScreen > Vertical { height: 1fr; padding: 0 1; }
    RaceScreen #about { height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    RaceScreen #clock { height: 1; color: $primary; }
    RaceScreen Grid { height: 1fr; grid-gutter: 0 1; }
    RaceScreen .arm {
        height: 100%; padding: 0 1; border: round $foreground 25%;
        &.-first { border: round $success; }
        &:ansi { border: round ansi_default; }
    }
    RaceScreen #verdict { height: auto; max-height: 4; }
    RaceScreen #hint { height: 1; color: $faint; &:ansi { text-style: dim; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", show=False, priority=True),
        Binding("left", "seek(-1)", show=False, priority=True),
        Binding("right", "seek(1)", show=False, priority=True),
        Binding("home", "seek(-1000000)", show=False, priority=True),
        Binding("end", "seek(1000000)", show=False, priority=True),
    ]

    class Progressed(Message):
        """An arm went on; posted from the model thread."""

        def __init__(self, what: str, done: float) -> None:
            super().__init__()
            self.what, self.done = what, done

    class Said(Message):
        """What an arm said in a round; posted from the model thread."""

        def __init__(self, arm: int, pieces: Sequence[Piece]) -> None:
            super().__init__()
            self.arm, self.pieces = arm, pieces

    def __init__(self, prompt: str, names: Sequence[str] = (), run: Run | None = None) -> None:
        """run: races on a worker thread, and tells how far it is and what is said."""
        super().__init__()
        self._run = run
        self._prompt = prompt
        self._names = names
        self._heard: dict[int, list[Piece]] = {}
        self.result: RaceResult | None = None
        self.clock = 0.0
        """Milliseconds of the replay."""
        self.playing = False
        self.left = False
        """The user went away; whatever still runs should stop."""
        self._timer: Timer | None = None
        self._at = 0.0

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(f"Race · {one_line(self._prompt)}"), id="about")
            yield Static(id="clock")
            with Grid(id="arms"):
                for i, name in enumerate(self._names):
                    arm = Static(id=f"arm-{i}", classes="arm")
                    arm.border_title = Content(f"{i + 1} {one_line(name)}")
                    yield arm
            yield Static(id="verdict")
            yield Static(Content(HINT), id="hint")

    def on_mount(self) -> None:
        if self._run is not None:
            self._race(self._run)

    def on_unmount(self) -> None:
        self.left = True

    def action_dismiss_none(self) -> None:
        self.left = True
        self.dismiss(None)

    @work(thread=True, group="race", exit_on_error=False)
    def _race(self, run: Run) -> None:
        def progress(what: str, done: float) -> None:
            # From the model thread, which must not wait for the screen.
            self.post_message(self.Progressed(what, done))

        def watch(arm: int, pieces: Sequence[Piece]) -> None:
            self.post_message(self.Said(arm, pieces))

        try:
            result = run(progress, watch, lambda: self.left)
        except Cancelled:
            return
        except Exception as error:  # the edge of a race: the screen says it as a sentence
            log.warning("the race failed: %s", error, exc_info=None if isinstance(error, DsparkError) else error)
            self.call_later(self.fail, str(error) or type(error).__name__)
        else:
            if not self.left:
                self.call_later(self.show, result)

    # What comes in ----------------------------------------------------------------------------------------------------

    def on_race_screen_progressed(self, event: Progressed) -> None:
        """While the arms run, one after another."""
        if self.result is None:
            room = max(10, min(40, self.size.width - 40))
            cells = bar(event.done, room)
            text = f" {event.done:4.0%}  the arms run one after another: {one_line(event.what)}"
            self.query_one("#clock", Static).update(Content(cells + "░" * (room - len(cells)) + text))

    def on_race_screen_said(self, event: Said) -> None:
        if self.result is None:
            heard = self._heard.setdefault(event.arm, [])
            heard += event.pieces
            self._hear(event.arm)

    def _hear(self, arm: int) -> None:
        view = self.query_one(f"#arm-{arm}", Static)
        heard = self._heard.get(arm, [])
        view.update(pieces_in(heard, view.content_size.width, view.content_size.height))
        view.border_subtitle = Content(f"{len(heard)} tok")

    def fail(self, sentence: str) -> None:
        if self.is_attached:
            self.query_one("#verdict", Static).update(Content.styled(f"⚠ {clean(sentence)}", "$error"))
            self.query_one("#clock", Static).update("")

    async def show(self, result: RaceResult) -> None:
        """Lay the arms out and begin the replay."""
        self.result = result
        grid = self.query_one(Grid)
        await grid.remove_children()
        await grid.mount_all(Static(id=f"arm-{i}", classes="arm") for i in range(len(result.arms)))
        for i, arm in enumerate(result.arms):
            self.query_one(f"#arm-{i}").border_title = Content(f"{i + 1} {one_line(title(arm))}")
        self.query_one("#verdict", Static).update(verdict(result))
        self.call_after_refresh(self.play)

    def play(self) -> None:
        """From the beginning."""
        self.layout_arms()
        self.clock, self.playing, self._at = 0.0, True, time.monotonic()
        if self._timer is None:
            self._timer = self.set_interval(FRAME, self.tick)
        self._timer.resume()
        self.draw()

    # The clock --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        now = time.monotonic()
        if self.playing:
            self.set_clock(self.clock + 1000.0 * (now - self._at))
        self._at = now

    def set_clock(self, ms: float) -> None:
        if self.result is None:
            return
        self.clock = max(0.0, min(ms, self.result.ms))
        if self.clock >= self.result.ms:
            self.playing = False
            if self._timer is not None:
                self._timer.pause()
        self.draw()

    def action_pause(self) -> None:
        if self.result is None:
            return
        if not self.playing and self.clock >= self.result.ms:
            self.play()
            return
        self.playing, self._at = not self.playing, time.monotonic()
        if self._timer is not None:
            self._timer.resume()
        self.draw()

    def action_seek(self, by: int) -> None:
        self.set_clock(self.clock + by * STEP)
        if self._timer is not None and self.playing:
            self._timer.resume()

    # Drawing ----------------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self.layout_arms()
        if self.result is not None:
            self.call_after_refresh(self.draw)
        else:
            for arm in self._heard:
                self.call_after_refresh(self._hear, arm)

    def layout_arms(self) -> None:
        arms = len(self.result.arms) if self.result is not None else len(self._names)
        if arms:
            self.query_one(Grid).styles.grid_size_columns = columns_for(arms, self.size.width)

    def draw(self) -> None:
        result = self.result
        if result is None or not self.is_attached:
            return
        for i, arm in enumerate(result.arms):
            view = self.query_one(f"#arm-{i}", Static)
            view.update(text_at(arm, self.clock, view.content_size.width, view.content_size.height))
            view.border_subtitle = Content(subtitle(result, arm, self.clock))
            view.set_class(arm.ms <= self.clock and arm.ms == min(a.ms for a in result.arms), "-first")
        state = "" if self.playing else "  paused" if self.clock < result.ms else "  over"
        room = max(10, min(60, self.size.width - 32))
        cells = bar(self.clock / result.ms if result.ms else 1.0, room)
        clock = f" {self.clock / 1000:5.1f} of {result.ms / 1000:.1f} s{state}"
        self.query_one("#clock", Static).update(Content(cells + "░" * (room - len(cells)) + clock))


def columns_for(arms: int, width: int) -> int:
    """All side by side where they have room, else two by two, else below each other."""
    if width >= arms * COLUMN:
        return arms
    return 2 if width >= 2 * COLUMN else 1


def title(arm: Arm) -> str:
    return arm.label if arm.drafter != "none" else "plain decoding"


def subtitle(result: RaceResult, arm: Arm, ms: float) -> str:
    """Rate so far; the ratio to the first arm once both are over."""
    over = ms >= arm.ms
    rate = arm.tokens_per_s if over else arm.rate_at(ms)
    parts = [f"{rate:.1f} tok/s", f"{arm.tokens_at(ms)} tok"]
    if over and arm is not result.arms[0]:
        parts.insert(1, f"{result.speedup(arm):.2f}×")
    return " · ".join(parts)


def text_at(arm: Arm, ms: float, width: int, height: int) -> Content:
    """What the arm has said by then."""
    return pieces_in(arm.pieces_at(ms), width, height)


def pieces_in(pieces: Sequence[Piece], width: int, height: int) -> Content:
    """Text in its colours, the last rows of it that fit."""
    if width <= 0 or height <= 0:
        return Content("")
    parts = [(clean(piece.text), f"$source-{piece.source}") for piece in pieces if piece.text]
    lines = Content.assemble(*parts).wrap(width) if parts else []
    return Content("\n").join(lines[-height:])


def verdict(result: RaceResult) -> Content:
    """Compared, never asserted: one line, or one for each arm that said something else."""
    note = [Content.styled(f"⚠ {result.note}", "$warning")] if result.note else []
    if result.identical:
        return Content("\n").join([Content.styled(f"✓ {result.banner}", "$success bold"), *note])
    rows = [
        Content.styled(f"{'≈' if arm.verdict.ok else '✗'} {one_line(title(arm))}: {arm.verdict}",
                       "$warning" if arm.verdict.ok else "$error bold")
        for arm in result.arms
        if arm.verdict is not None and not arm.verdict.same
    ]  # fmt: skip
    return Content("\n").join([*rows, *note])


def wanted(words: str, default: list[str]) -> tuple[list[str], int]:
    """(drafters, tokens) of `none,lookup,dspark:4 128`."""
    names, tokens = default, TOKENS
    for word in words.split():
        if word.isdigit():
            tokens = max(2, int(word))
        else:
            names = [name for name in word.split(",") if name]
    return names, tokens


def default_arms(session: ChatSession) -> list[str]:
    """Plain decoding, the drafter in use, then the others that can run."""
    able = [d.name for d in session.drafters if d.available]
    order = ["none", session.drafter, *(n for n in able if "+" not in n), *able]
    return [name for name in dict.fromkeys(order) if name in able][:MOST]


def run_race(
    engine: Any, request: Request, names: Sequence[str],
    progress: Callable[[str, float], None], watch: Watch, stop: Callable[[], bool],
) -> Any:  # fmt: skip
    """`engine.diagnostics.race.race`, imported when it is wanted."""
    from engine.diagnostics.race import race

    return race(engine, request, names, progress=progress, watch=watch, stop=stop)

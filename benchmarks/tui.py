"""What the app costs: the same answers with it and without it, the first picture, and standing still.

    python benchmarks/tui.py [--model NAME] [--drafter none] [--cap 4] [--tokens 96] [--turns 4] [--idle 20]

Prints one JSON line and a table. One process on a real pseudo terminal loads the model once; then each turn answers one
prompt twice, through the app and without it, the order changing from turn to turn. Tokens a second are from the first
event with text to the last, by the clock and by the processor time of the whole process, drawing included. `idle` is
the processor time of the app with a finished chat on the screen; `first picture` is the time from the start of the
program to its first full frame, three times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.terminal import ROOT, Terminal, idle, measured, run_app

if TYPE_CHECKING:
    from engine.types import Event
    from tui.app import ChatApp

PROMPTS = (
    "Explain in a few sentences why the sky is blue during the day and red in the evening.",
    "Give me three tips for a first visit to Amsterdam.",
    "What is the difference between a virus and a bacterium?",
    "Write a short letter to a friend who moved to another city.",
)


def main() -> int:
    parser = argparse.ArgumentParser(description="what the app costs")
    parser.add_argument("--model", default="")
    parser.add_argument("--drafter", default="none")
    parser.add_argument("--cap", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        pictures = [first_picture(args, folder) for _ in range(3)]
        result = measured(__file__, args, folder)
    result["first_picture_s"] = pictures
    print(json.dumps(result))
    print(f"{'turn':>4} {'app tok/s':>10} {'without':>8} {'ratio':>6} {'by processor':>13}")
    for i, turn in enumerate(result["turns"]):
        print(f"{i:>4} {turn['app']:>10.2f} {turn['without']:>8.2f} {turn['clock']:>6.3f} {turn['processor']:>13.3f}")
    print(f"app ÷ without: {result['clock']:.3f} by the clock, {result['processor']:.3f} by processor (medians)")
    print(f"idle: {result['idle_ms']:.0f} ms of processor time in {args.idle:.0f} s")
    print("first picture:", ", ".join(f"{s:.2f} s ({cpu:.2f} of processor)" for s, cpu in pictures))
    print(f"load {result['load']:.1f}")
    return 0


def first_picture(args: argparse.Namespace, home: str) -> tuple[float, float]:
    """Seconds, and seconds of processor, from exec until the message field, last of the screen, has been drawn."""
    model = ["--model", args.model] if args.model else []
    terminal = Terminal([sys.executable, str(ROOT / "dspark_chat.py"), *model], home)
    while "Enter send" not in terminal.text:
        if not terminal.read() or time.perf_counter() - terminal.begun > 60:
            break
    taken, worked = time.perf_counter() - terminal.begun, terminal.processor()
    terminal.end()
    return taken, worked


class Marks:
    """The clock and the processor at the first and the last event with text, and the tokens between."""

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None
        self.last = (0.0, 0.0)
        self.tokens = 0

    def hear(self, event: Event) -> None:
        from engine.types import Tokens

        if isinstance(event, Tokens):
            self.last = (time.perf_counter(), time.process_time())
            if self.first is None:
                self.first = self.last
            else:
                self.tokens += len(event.pieces)

    def rate(self, clock: int) -> float:
        """Tokens a second of the clock (0) or of the processor (1)."""
        assert self.first is not None
        return self.tokens / (self.last[clock] - self.first[clock])


def child(args: argparse.Namespace) -> None:
    """The app; it asks itself, and leaves when it has its numbers."""
    from engine.config import Config
    from tui.options import Options

    result: dict[str, Any] = {"bench": "tui", "drafter": args.drafter, "tokens": args.tokens, "turns": []}

    async def measure(app: ChatApp) -> None:
        ask = Asking(app)
        for n in range(args.turns + 1):  # the first warms up
            pair = await ask.both_ways(PROMPTS[n % len(PROMPTS)], first="app" if n % 2 else "without")
            if n:
                result["turns"].append(pair)
        await asyncio.sleep(2.0)
        begun = time.process_time()
        await asyncio.sleep(args.idle)
        result["idle_ms"] = (time.process_time() - begun) * 1000

    config = Config(
        model=args.model, drafter=args.drafter, cap=args.cap, max_tokens=args.tokens, sources={"cap": "flag"}
    )
    run_app(Options(config), measure)
    for name in ("clock", "processor"):
        result[name] = statistics.median(turn[name] for turn in result["turns"])
    result["load"] = os.getloadavg()[0]
    Path(args.child).write_text(json.dumps(result))


class Asking:
    """Has the model of an app answer, through the app and without it."""

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self._marks: Marks | None = None
        put = app.main.conversation.events.put

        def heard(event: Event) -> None:
            if self._marks is not None:
                self._marks.hear(event)
            put(event)

        app.main.conversation.events.put = heard  # type: ignore[method-assign]

    async def both_ways(self, prompt: str, first: str) -> dict[str, float]:
        pair: dict[str, Marks] = {}
        for way in ("app", "without") if first == "app" else ("without", "app"):
            pair[way] = await (self._through(prompt) if way == "app" else self._without(prompt))
            await asyncio.sleep(0.5)
        app, bare = pair["app"], pair["without"]
        assert app.tokens == bare.tokens
        return {
            "app": app.rate(0),
            "without": bare.rate(0),
            "clock": app.rate(0) / bare.rate(0),
            "processor": app.rate(1) / bare.rate(1),
        }

    async def _through(self, prompt: str) -> Marks:
        await self._app.main.show_chat(self._app.library.new())
        self._marks = marks = Marks()
        self._app.main.submit(prompt)
        await idle(self._app)
        return marks

    async def _without(self, prompt: str) -> Marks:
        from engine.types import Failed, Finished

        engine: Any = self._app.session.engine
        marks, done = Marks(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear(event: Event) -> None:
            marks.hear(event)
            if isinstance(event, Finished | Failed):
                loop.call_soon_threadsafe(done.set)

        ids = engine.format.prompt([{"role": "user", "content": prompt}]).ids
        engine.submit(self._app.session.effective.request(ids), hear)
        await done.wait()
        return marks


if __name__ == "__main__":
    sys.exit(main())

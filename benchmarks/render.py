"""What drawing a streamed answer and paging through a conversation cost: the real app on a real pseudo terminal, a
scripted engine behind it.

    python benchmarks/render.py [--tokens 4000] [--rate 200] [--step 0] [--turns 0]

Prints one JSON line and tables: processor milliseconds of the whole process per drawing, for each 500 tokens. The
answer is prose, lists, code, a table, CJK and emoji. With `--step N` each drawing has N tokens, whatever the load of
the machine; else what came meanwhile.

`--turns N` has the answer in an empty chat, then in one of N finished turns: "drawing ratio" is a drawing there by one
in the empty chat. Before that it pages through all of them, as a reader would, to the beginning and back to the end, at
two widths, in turn with a chat of 24 such turns: "scroll ratio" is a page of the long chat by one of the short chat on
the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.terminal import SIZE, idle, measured, resize, run_app
from engine.types import Round, Tokens

if TYPE_CHECKING:
    from tui.app import ChatApp
    from tui.conversation.chat import Chat

BUCKET = 500
SHORT = 24
"""Turns of the chat that the long one is compared with: it scrolls, and has the same answers."""
NARROW = 90

Mark = tuple[int, float, float]
"""After a drawing: the tokens so far, the processor's and the clock's seconds."""

SECTION = """## Part {n}

Speculative decoding lets a **small draft model** propose several tokens that the target then verifies in a single
forward pass, so the cost of reading every weight byte is *shared* between them. See [the paper](https://example.org/x)
for `accept(draft, logits)` and its proof; part {n} only repeats the argument in other words.

1. The drafter proposes a block of tokens.
2. The target reads the block in one pass.
3. What agrees is kept, the rest is thrown away.
   - nothing is lost
   - nothing is gained when nothing agrees
4. The next round begins.

```python
def accept(draft, logits, rng):
    for i, token in enumerate(draft):
        if not keep(token, logits[i], rng):
            return draft[:i]  # part {n}
    return draft
```

| width | ms | note |
|------:|---:|------|
| 1 | 134 | plain |
| 8 | 156 | **eight rows** |

投機的デコードは、小さなモデルが提案した複数のトークンを一度に検証します。👩‍👩‍👧‍👦 さらに続く文章です。

"""


def answer(tokens: int) -> str:
    """About four characters a token."""
    text = ""
    n = 0
    while len(text) < tokens * 4:
        n += 1
        text += SECTION.replace("{n}", str(n))
    return text[: tokens * 4]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--step", type=int, default=0)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        result = measured(__file__, args, folder)
    print(json.dumps(result))
    print(f"{'tokens':>8} {'drawings':>9} {'ms each':>8} {'ms/token':>9}")
    for row in result["buckets"]:
        print(f"{row['tokens']:>8} {row['drawings']:>9} {row['ms']:>8.2f} {row['ms_token']:>9.3f}")
    for row in result["scroll"]:
        print(
            f"{row['way']}: {row['pages']} pages of {row['long'][0]:.1f} ms (95 of 100 below {row['long'][1]:.1f}),",
            end=" ",
        )
        print(f"in a short chat {row['short'][0]:.1f} ({row['short'][1]:.1f})")
        print(f"    scroll ratio {row['ratio'][0]:.2f}, of the 95th percentiles {row['ratio'][1]:.2f}")
    if "drawing" in result:
        print(f"drawing ratio {result['drawing']:.2f}")
    print(f"last ÷ first: {result['ratio']:.2f}   processor share: {result['share']:.0%}   load {result['load']:.1f}")
    return 0


def child(args: argparse.Namespace) -> None:
    """The app; it says hello to itself and leaves when the answer is complete."""
    from engine.config import Config
    from tui.options import Options

    answers: list[list[Mark]] = []
    scroll: list[dict[str, Any]] = []
    drew = threading.Event()

    async def measure(app: ChatApp) -> None:
        for _ in range(2 if args.turns else 1):
            answers.append([])
            app.main.submit("hello")
            await idle(app)
            await asyncio.sleep(0.5)
            if args.turns and not scroll:
                scroll.extend(await compared(app, args.turns))

    def drawn(app: ChatApp) -> None:
        drew.set()
        if answers:
            answers[-1].append((app.session.last.tokens, time.process_time(), time.monotonic()))

    def load(_: Callable[..., None]) -> Any:
        return paced(args, drew)

    run_app(Options(Config(), loader=load), measure, drawn)
    result = summary(answers[-1], args) | {"scroll": scroll}
    if args.turns:
        empty = summary(answers[0], args)
        result["drawing"] = statistics.mean(b["ms"] for b in result["buckets"]) / statistics.mean(
            b["ms"] for b in empty["buckets"]
        )
    Path(args.child).write_text(json.dumps(result))


def paced(args: argparse.Namespace, drew: threading.Event) -> Any:
    """A scripted engine that plays at a rate instead of at once, or as fast as is drawn."""
    from tests.tui.fakes import FakeEngine, FakeTicket, script

    class Paced(FakeEngine):
        def _play(self, ticket: FakeTicket) -> None:
            time.sleep(1.0)
            ticket.prefilled()
            begun, said, waiting = time.monotonic(), 0, 0
            for event in script(answer(args.tokens), ms=1000 / args.rate):
                if isinstance(event, Round) and not args.step:
                    time.sleep(max(0.0, begun + said / args.rate - time.monotonic()))
                elif isinstance(event, Round) and waiting >= args.step:
                    drew.wait(5.0)
                    drew.clear()
                    waiting = 0
                ticket.say(event)
                if isinstance(event, Tokens):
                    said += len(event.pieces)
                    waiting += len(event.pieces)
            ticket.finish()

    return Paced()


def conversation(turns: int) -> Chat:
    """Finished turns, each of a hundred tokens."""
    from tests.tui.fakes import script
    from tui.conversation.chat import Chat, Status, Turn

    chat = Chat()
    for n in range(turns):
        turn = Turn(f"Question {n}")
        for event in script(answer(100)):
            list(turn.answer.take(event))
        turn.answer.status = Status.DONE
        chat.turns.append(turn)
    return chat


async def compared(app: ChatApp, turns: int) -> list[dict[str, Any]]:
    """Pages of a short and of a long chat, each way, and again after the window became narrower. The short chat several
    times, for its pages are few. The long one is on the screen at the end."""
    pages: dict[tuple[str, str], list[float]] = {}
    for kind in ("short", "short", "long", "short", "short"):
        chat = conversation(turns if kind == "long" else SHORT)
        app.session.show(chat)
        app.main.transcript.open(chat)
        for columns in (SIZE[1], NARROW):
            resize(SIZE[0], columns)
            await asyncio.sleep(0.5)
            for direction, name in ((-1, "up"), (1, "down")):
                pages.setdefault((f"{name}, {columns} columns", kind), []).extend(await paged(app, direction))
        resize(*SIZE)
    chat = conversation(turns)
    app.session.show(chat)
    app.main.transcript.open(chat)
    await asyncio.sleep(1.0)
    out: list[dict[str, Any]] = []
    for way in sorted({way for way, _ in pages}):
        short, long = middle(pages[way, "short"]), middle(pages[way, "long"])
        ratio = [long[0] / short[0], long[1] / short[1]]
        out.append({"way": way, "pages": len(pages[way, "long"]), "short": short, "long": long, "ratio": ratio})
    return out


async def paged(app: ChatApp, direction: int) -> list[float]:
    """Processor milliseconds of each page to the one end."""
    out: list[float] = []
    while True:
        begun, before = time.process_time(), app.main.transcript.scroll_y
        app.main.action_page(direction)
        await asyncio.sleep(0.05)
        if app.main.transcript.scroll_y == before:
            return out
        out.append((time.process_time() - begun) * 1000)


def middle(ms: list[float]) -> tuple[float, float]:
    """The median and the 95th percentile."""
    return statistics.median(ms), statistics.quantiles(ms, n=20)[-1]


def summary(marks: list[Mark], args: argparse.Namespace) -> dict[str, Any]:
    buckets = []
    for end in range(BUCKET, args.tokens + 1, BUCKET):
        inside = [m for m in marks if end - BUCKET <= m[0] < end or m[0] == end == args.tokens]
        if len(inside) < 2:
            continue
        drawings = len(inside) - 1
        ms = (inside[-1][1] - inside[0][1]) * 1000
        tokens = max(1, inside[-1][0] - inside[0][0])
        buckets.append({"tokens": end, "drawings": drawings, "ms": ms / drawings, "ms_token": ms / tokens})
    cpu, wall = marks[-1][1] - marks[0][1], marks[-1][2] - marks[0][2]
    return {
        "bench": "render",
        "tokens": args.tokens,
        "rate": args.rate,
        "turns": args.turns,
        "ratio": buckets[-1]["ms"] / buckets[0]["ms"],
        "share": cpu / wall,
        "wall_s": wall,
        "load": os.getloadavg()[0],
        "buckets": buckets,
    }


if __name__ == "__main__":
    sys.exit(main())

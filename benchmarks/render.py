"""What drawing a streamed answer costs: the real app on a real pseudo terminal, a scripted engine behind it.

    python benchmarks/render.py [--tokens 4000] [--rate 200] [--turns 0]

Prints one JSON line and a table: processor milliseconds of the whole process per drawing, for each 500 tokens. The
answer is prose, lists, code, a table, CJK and emoji. `--turns` puts that many finished turns before it, and pages
through all of them to the beginning and back to the end first, as a reader would; what a page costs is said too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.core import Round, Tokens

BUCKET = 500
SIZE = (36, 120)

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
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, __file__, "--child", str(out), "--tokens", str(args.tokens)]
        command += ["--rate", str(args.rate), "--turns", str(args.turns)]
        tail = on_terminal(command, folder)
        if not out.exists():
            print(f"the app did not finish; it said at last:\n{tail!r}", file=sys.stderr)
            return 1
        result: dict[str, Any] = json.loads(out.read_text())
    print(json.dumps(result))
    print(f"{'tokens':>8} {'drawings':>9} {'ms each':>8} {'ms/token':>9}")
    for row in result["buckets"]:
        print(f"{row['tokens']:>8} {row['drawings']:>9} {row['ms']:>8.2f} {row['ms_token']:>9.3f}")
    if "pages" in result:
        print(f"{result['pages']} pages, {result['page_ms']:.1f} ms each, the dearest {result['page_max_ms']:.1f}")
    print(f"last ÷ first: {result['ratio']:.2f}   processor share: {result['share']:.0%}   load {result['load']:.1f}")
    return 0


def on_terminal(command: list[str], home: str) -> str:
    """Run a command on a fresh pseudo terminal of the size above; the last of what it drew."""
    import fcntl
    import struct
    import termios

    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "DSPARK_HOME": home}
        os.environ.pop("NO_COLOR", None)
        os.execv(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    tail = b""
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        tail = (tail + data)[-4000:]
    os.waitpid(pid, 0)
    os.close(fd)
    return tail.decode("utf-8", "replace")


def child(args: argparse.Namespace) -> None:
    """The app; it says hello to itself and leaves when the answer is complete."""
    from engine.config import Config
    from tests.tui.fakes import FakeEngine, FakeTicket, script
    from tui.app import ChatApp
    from tui.chat import Chat, Status, Turn
    from tui.options import Options

    def finished(question: str) -> Turn:
        turn = Turn(question)
        for event in script(answer(100)):
            list(turn.answer.take(event))
        turn.answer.status = Status.DONE
        return turn

    marks: list[tuple[int, float, float]] = []

    class Paced(FakeEngine):
        """Plays at a rate instead of at once."""

        def _play(self, ticket: FakeTicket) -> None:
            time.sleep(1.0)
            ticket.prefilled()
            begun, said = time.monotonic(), 0
            for event in script(answer(args.tokens), ms=1000 / args.rate):
                if isinstance(event, Round):
                    time.sleep(max(0.0, begun + said / args.rate - time.monotonic()))
                ticket.say(event)
                if isinstance(event, Tokens):
                    said += len(event.pieces)
            ticket.finish()

    chat = Chat(turns=[finished(f"Question {n}") for n in range(args.turns)])
    pages: list[float] = []

    class Measured(ChatApp):
        def on_ready(self) -> None:
            self.run_worker(self._drive())

        async def _drive(self) -> None:
            while self.controller.engine is None:
                await asyncio.sleep(0.1)
            self.controller.show(chat)
            await self.transcript.open(chat)
            await asyncio.sleep(0.3)
            for direction in (-1, 1):
                still = 0
                while chat.turns and still < 8:
                    begun, before = time.process_time(), self.transcript.scroll_y
                    self.action_page(direction)
                    await asyncio.sleep(0.05)
                    pages.append((time.process_time() - begun) * 1000)
                    still = still + 1 if self.transcript.scroll_y == before else 0
            await self.send("hello")

        def flush(self) -> None:
            super().flush()
            marks.append((self.controller.last.tokens, time.process_time(), time.monotonic()))

        def turn_ended(self, turn: Turn) -> None:
            threading.Timer(0.5, lambda: self.call_from_thread(self.exit, 0)).start()

    def load(_: Callable[..., None]) -> Any:
        return Paced()

    Measured(Options(Config(), loader=load)).run()
    result = summary(marks, args)
    if len(pages) > 2:
        result |= {"pages": len(pages), "page_ms": statistics.median(pages), "page_max_ms": max(pages)}
    Path(args.child).write_text(json.dumps(result))


def summary(marks: list[tuple[int, float, float]], args: argparse.Namespace) -> dict[str, Any]:
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

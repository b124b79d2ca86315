"""The app on a pseudo terminal of its own: the frame that benchmarks of the app share.

A benchmark starts itself again as a child on the terminal; the child is the app, which measures itself and leaves its
numbers in a file. Nothing here knows what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from tui.app import ChatApp
    from tui.options import Options
    from tui.screens.chat import ChatScreen

SIZE = (36, 120)


class Terminal:
    """A command on a fresh pseudo terminal."""

    def __init__(self, command: Sequence[str], home: str) -> None:
        self.begun = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "DSPARK_HOME": home}
            os.environ.pop("NO_COLOR", None)
            os.execv(command[0], list(command))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self.out = b""

    def read(self) -> bool:
        """Whether there may be more."""
        if not select.select([self.fd], [], [], 0.5)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.out = (self.out + data)[-1_000_000:]
        return bool(data)

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>]", "", self.out.decode("utf-8", "replace"))

    def processor(self) -> float:
        """Seconds of processor so far; 0 where /proc does not tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def resize(rows: int, columns: int) -> None:
    """Give the terminal of this process another size, as a window does that is dragged."""
    assert sys.__stdout__ is not None
    fcntl.ioctl(sys.__stdout__.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.kill(os.getpid(), signal.SIGWINCH)


def measured(script: str, args: argparse.Namespace, home: str) -> dict[str, Any]:
    """What `script --child FILE`, with the other arguments of this process, left in FILE."""
    out = Path(home) / "out.json"
    command = [sys.executable, script, "--child", str(out)]
    for name, value in vars(args).items():
        if name != "child":
            command += [f"--{name}", str(value)]
    terminal = Terminal(command, home)
    while terminal.read():
        pass
    terminal.end()
    if not out.exists():
        sys.exit(f"the app did not finish; it said at last:\n{terminal.text[-3000:]}")
    return json.loads(out.read_text())


def run_app(
    options: Options,
    measure: Callable[[ChatApp], Awaitable[None]],
    drawn: Callable[[ChatApp], None] = lambda app: None,
) -> ChatApp:
    """The child's part: the app until `measure` is through, which begins when there is a model. `drawn` is called after
    each drawing of an answer."""
    from tui.app import ChatApp

    class Measured(ChatApp):
        def on_ready(self) -> None:
            self.run_worker(self._drive())

        async def _drive(self) -> None:
            while self.session.engine is None:
                await asyncio.sleep(0.1)
                if self.main.loader.manager.error:
                    raise SystemExit(self.main.loader.manager.error)
            await asyncio.sleep(1.0)
            await measure(self)
            self.exit(0)

        def get_default_screen(self) -> ChatScreen:
            view = super().get_default_screen().conversation
            flush = view.flush

            def counted() -> None:
                flush()
                drawn(self)

            view.flush = counted  # type: ignore[method-assign]
            return self.main

    app = Measured(options)
    app.run()
    if app.session.engine is not None:
        app.session.engine.close()
    return app


async def idle(app: ChatApp) -> None:
    """Until no answer is under way."""
    while app.session.busy:
        await asyncio.sleep(0.05)

"""The real driver on a real pseudo terminal: type, stream, switch, stop, resize, quit; nothing hostile gets out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

CHILD = """
import sys
sys.path.insert(0, {root!r})
from engine.config import Config
from tests.tui.fakes import FakeEngine
from tui.app import run
from tui.options import Options

hostile = "visible \\x1b]52;c;aGk=\\x07 words \\x1b[2J and \\x1b]0;title\\x1b\\\\ more "
hostile += "\\x9b6n text \\x1bc end \\x1b]unfinished"
engine = FakeEngine(answers=[hostile, "second answer " * 400], pause=0.02)
code = run(Options(Config(), loader=lambda progress: engine))
print("closed" if engine.closed else "open", code)
"""
ROOT = str(Path(__file__).resolve().parents[3])


def plain(data: bytes) -> str:
    """Without control sequences."""
    return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>]", "", data.decode("utf-8", "replace"))


class Terminal:
    """A child on a pseudo terminal."""

    def __init__(self, script: str, home: Path) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "DSPARK_HOME": str(home), "TEXTUAL_ANIMATIONS": "none"}
            os.environ.pop("NO_COLOR", None)
            os.execv(sys.executable, [sys.executable, "-c", script])
        self.size(120, 36)
        self.out = b""

    def size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def send(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def read_until(self, pattern: str, timeout: float = 40.0, since: int = 0) -> None:
        """Read until the text, stripped of sequences, matches."""
        end = time.monotonic() + timeout
        while not re.search(pattern, plain(self.out[since:])):
            assert time.monotonic() < end, self.text[-3000:]
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.out += os.read(self.fd, 65536)
                except OSError:
                    break

    def drain(self, seconds: float = 60.0) -> None:
        """Read until nothing comes for a moment, or for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and select.select([self.fd], [], [], 0.2)[0]:
            self.out += os.read(self.fd, 65536)

    @property
    def text(self) -> str:
        return plain(self.out)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_torn_mouse_reports_suspending_and_a_storm_of_sizes(tmp_path: Path) -> None:
    config = tmp_path / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text('[app]\nmouse = "wheel"\n')
    terminal = Terminal(CHILD.format(root=ROOT), tmp_path)
    terminal.read_until("is ready")
    for piece in ("typed \x1b[<35;1", "12;30M", "text"):
        terminal.send(piece)
        time.sleep(0.25)
    terminal.send("\r")
    terminal.read_until("You › typed text")
    terminal.read_until("tok/round")
    assert b"\x1b[?1007h" in terminal.out
    assert b"\x1b[?1000h" not in terminal.out
    for i in range(60):
        terminal.size(20 + i * 3 % 150, 5 + i * 7 % 45)
    terminal.size(110, 32)
    before = len(terminal.out)
    terminal.send("\x1a")  # Ctrl+Z
    pid, status = os.waitpid(terminal.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    terminal.drain()
    assert b"\x1b[?1049l" in terminal.out[before:]
    before = len(terminal.out)
    os.kill(pid, signal.SIGCONT)
    terminal.read_until("You › typed text", since=before)
    assert b"\x1b[?1049h" in terminal.out[before:]
    terminal.send("\x11")
    terminal.read_until("closed 0")
    assert terminal.wait() == 0


def test_o54_on_a_real_terminal_nothing_hostile_gets_out(tmp_path: Path) -> None:
    terminal = Terminal(CHILD.format(root=ROOT), tmp_path)
    terminal.read_until("is ready")
    terminal.send("hello there")
    time.sleep(0.3)
    terminal.send("\r")
    terminal.read_until("tok/round")
    terminal.send("again\x1b[200~ with\ntwo lines\x1b[201~")
    time.sleep(0.3)
    terminal.send("\r")
    terminal.read_until("second answer")
    terminal.send("\x1b[Z")  # Shift+Tab
    terminal.read_until("Drafter none")
    for columns, rows in ((80, 24), (40, 12), (200, 50), (100, 30)):
        terminal.size(columns, rows)
    terminal.send("\x1b")  # Esc
    terminal.read_until("stopped")
    terminal.send("\x11")  # Ctrl+Q
    terminal.read_until("closed 0")
    assert terminal.wait() == 0
    raw = terminal.out
    assert b"\x1b]52" not in raw
    assert b"\x1b]0;title" not in raw
    assert b"\x1bc" not in raw
    assert b"\x1b[6n" not in raw
    assert b"\xc2\x9b" not in raw
    assert b"\x1b[2J and" not in raw
    assert "visible" in terminal.text


def test_killed_in_mid_answer_and_started_again_the_chat_is_there(tmp_path: Path) -> None:
    """kill -9 of the app itself: what was on the screen a second before comes back, marked as cut."""
    script = CHILD.format(root=ROOT).replace("answers=[hostile, ", "answers=[")
    terminal = Terminal(script, tmp_path)
    terminal.read_until("is ready")
    terminal.send("remember me")
    time.sleep(0.3)
    terminal.send("\r")
    terminal.read_until("second answer")
    end = time.monotonic() + 2.5  # two rounds of saving, on a machine that is busy
    while time.monotonic() < end:
        terminal.drain(end - time.monotonic())
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait() == -signal.SIGKILL
    again = Terminal(script.replace("loader=", "continue_last=True, loader="), tmp_path)
    again.read_until("the program ended before this answer did")
    assert again.text.count("second answer") > 10
    again.send("\x11")
    again.read_until("closed 0")
    assert again.wait() == 0

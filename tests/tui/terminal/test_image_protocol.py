"""Pictures on the screen: which terminals are asked, what half blocks look like, the screen that shows them."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from PIL import Image

from tests.tui.drive import running, shown, type_text, wait_until
from tui.screens.image import PictureScreen
from tui.terminal import image_protocol
from tui.terminal.image_protocol import HalfBlocks, half_blocks

ROOT = str(Path(__file__).resolve().parents[3])


@pytest.mark.parametrize(("env", "asked"), [
    ({"TERM": "xterm-256color"}, False), ({"TERM": "xterm-kitty"}, True), ({"TERM_PROGRAM": "WezTerm"}, True),
    ({"TERM": "xterm-kitty", "TMUX": "x"}, False), ({"KITTY_WINDOW_ID": "1", "SSH_TTY": "/dev/pts/1"}, False),
    ({}, False), ({"TERM_PROGRAM": "Apple_Terminal"}, False), ({"TERM": "foot", "NO_COLOR": "1"}, False),
])  # fmt: skip
def test_only_terminals_that_may_draw_are_asked(env: dict[str, str], asked: bool) -> None:
    assert image_protocol.graphics(env) is asked


def test_half_blocks_keep_the_shape_and_the_colours() -> None:
    image = Image.new("RGB", (40, 20), "red")
    image.paste("blue", (20, 0, 40, 20))
    content = half_blocks(image, 10, 20)
    rows = content.plain.split("\n")
    assert [len(row) for row in rows] == [10, 10]
    assert set(content.plain) == {"▀", "\n"}
    colours = [span.style.foreground.rgb for span in content.spans]  # type: ignore[union-attr]
    assert colours[0] == (255, 0, 0)
    assert colours[9] == (0, 0, 255)
    assert half_blocks(image, 0, 5).plain == ""
    assert half_blocks(Image.new("RGB", (1, 4000)), 30, 8).plain.count("\n") == 7


async def test_the_pictures_of_a_message_are_shown_one_after_another(tmp_path: Path) -> None:
    for name in ("red", "blue"):
        Image.new("RGB", (8, 6), name).save(tmp_path / f"{name} one.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    async with running() as (app, pilot, _):
        await type_text(pilot, "/image show")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "There is no picture here" in shown(app))
        app.session.album.waiting = [tmp_path / f"{n}.png" for n in ("red one", "blue one", "broken")]
        await type_text(pilot, "/image show")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "red one.png 8×6" in shown(app))
        assert isinstance(app.screen, PictureScreen)
        assert app.screen.query(HalfBlocks)
        assert "▀" in shown(app)
        await pilot.press("right")
        await wait_until(pilot, lambda: "blue one.png" in shown(app) and "2 of 3" in shown(app))
        await pilot.press("right")
        await wait_until(pilot, lambda: "broken.png is not a picture" in shown(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: len(app.screen_stack) == 1)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({b"\x1b[c": b"\x1b[?62;4;22c"}, "textual_image.widget.sixel.Image"),
        ({b"\x1b[c": b"\x1b[?62;22c", b"a=q": b"OK"}, "AutoImage"),
        ({b"\x1b[c": b"\x1b[?62;22c"}, "HalfBlocks"),
    ],
)
def test_the_terminal_says_what_it_draws(answers: dict[bytes, bytes], kind: str) -> None:
    """The test plays the terminal: it answers the questions about sixel and kitty's protocol, or does not."""
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r})\n"
        "from tui.terminal import image_protocol; from PIL import Image\n"
        "image_protocol.prepare(); print('draws', type(image_protocol.widget(Image.new('RGB', (4, 4)))))"
    )
    for _ in range(5):  # a terminal has a tenth of a second to answer, which a busy machine may miss
        seen = played(code, answers)
        if kind in seen:
            return
    raise AssertionError(seen)


def played(code: str, answers: dict[bytes, bytes]) -> str:
    """What a program writes on a terminal that answers so."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 480, 640))
        os.environ |= {"TERM": "xterm-kitty"}
        for name in ("TMUX", "STY", "SSH_CONNECTION", "SSH_TTY", "NO_COLOR"):
            os.environ.pop(name, None)
        os.execv(sys.executable, [sys.executable, "-c", code])
    seen, end, left = b"", time.monotonic() + 40, dict(answers)
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:  # it has ended
                break
        for question in [q for q in left if q in seen]:
            answer = left.pop(question)
            if answer == b"OK":
                number = seen.split(b"i=")[1].split(b",")[0]
                answer = b"\x1b_Gi=" + number + b";OK\x1b\\"
            os.write(fd, answer)
    os.waitpid(pid, 0)
    return seen.decode("utf-8", "replace")

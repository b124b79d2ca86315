"""The desktop's clipboard, by its own tools: copying, beside OSC 52, which not every terminal takes, and reading
pictures and text, which no terminal hands over.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UsageError

Tool = tuple[str, tuple[str, ...]]
"""(needed environment variable, command)."""
TOOLS: tuple[Tool, ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)
"""Read the text from standard input."""
PICTURE_TOOLS: tuple[Tool, ...] = (
    ("", ("pngpaste", "-")),
    ("", ("osascript", "-e", "the clipboard as «class PNGf»")),
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
)
"""Write a PNG to standard output; osascript writes it in hexadecimal."""
TEXT_TOOLS: tuple[Tool, ...] = (
    ("", ("pbpaste",)),
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "text/plain;charset=utf-8")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "UTF8_STRING", "-out")),
)
PNG = b"\x89PNG\r\n\x1a\n"
MAX_BYTES = 64 << 20
SECONDS = 5
_HEXED = re.compile(rb"\xc2?\xab?data PNGf([0-9A-Fa-f]+)")


def elsewhere() -> bool:
    """Over ssh the clipboard here is another machine's."""
    return bool(os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"))


def tool() -> tuple[str, ...] | None:
    """The first tool that would reach the user's own clipboard; None over ssh."""
    return next(iter(_able(TOOLS)), None)


def copy(text: str, command: tuple[str, ...]) -> bool:
    """Hand the text over; whether the tool took it."""
    try:
        done = subprocess.run(
            command, input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=3, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def keep_picture(folder: Path) -> Path:
    """Write the picture in the clipboard to a file that stays, named by what is in it.

    Raises:
        UsageError: no picture there, or no way to it, in one sentence.
    """
    data = picture()
    path = folder / f"pasted-{hashlib.sha256(data).hexdigest()[:12]}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"The picture cannot be kept in {folder}: {error.strerror}.") from error
    return path


def picture() -> bytes:
    """The picture in the clipboard, as PNG.

    Raises:
        UsageError: no picture there, or no way to it, in one sentence.
    """
    if elsewhere():
        raise UsageError("Over ssh your own clipboard is out of reach: drop the file here, or name it as @path.")
    commands = _able(PICTURE_TOOLS)
    if not commands:
        raise UsageError(
            "Nothing here reads pictures from the clipboard: install wl-clipboard or xclip, or name the file as @path."
        )
    for command in commands:
        data = _read(command)
        hexed = _HEXED.match(data)
        data = bytes.fromhex(hexed[1].decode()) if hexed and len(hexed[1]) % 2 == 0 else data
        if data.startswith(PNG):
            if len(data) > MAX_BYTES:
                raise UsageError(f"The picture in the clipboard has {len(data) >> 20} MB; shrink it below 64.")
            return data
    raise UsageError("There is no picture in the clipboard.")


def text() -> str | None:
    """The text in the clipboard; None where nothing reads it."""
    commands = [] if elsewhere() else _able(TEXT_TOOLS)
    return _read(commands[0]).decode("utf-8", "replace") if commands else None


def _able(tools: Sequence[Tool]) -> list[tuple[str, ...]]:
    if elsewhere():
        return []
    return [command for need, command in tools if (not need or os.environ.get(need)) and shutil.which(command[0])]


def _read(command: tuple[str, ...]) -> bytes:
    """What a tool writes; nothing when it fails, as it does where the clipboard holds something else."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""

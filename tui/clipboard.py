"""Copying beside OSC 52, which not every terminal takes: by the desktop's own tool, when it is on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess

TOOLS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)
"""(needed environment variable, command that reads the text from standard input)."""


def tool() -> tuple[str, ...] | None:
    """The first tool that would reach the user's own clipboard; None over ssh, where it would be another machine's."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return None
    for variable, command in TOOLS:
        if (not variable or os.environ.get(variable)) and shutil.which(command[0]):
            return command
    return None


def copy(text: str, command: tuple[str, ...]) -> bool:
    """Hand the text over; whether the tool took it."""
    try:
        done = subprocess.run(
            command, input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=3, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0

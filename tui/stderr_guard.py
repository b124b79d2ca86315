"""Native libraries write warnings to file descriptor 2, in the middle of the screen. This sends them to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """While open, descriptor 2 is `path`, and `sys.__stderr__`, on which Textual draws, is still the terminal.

    Does nothing when standard error is no terminal.
    """
    stream = sys.__stderr__
    if stream is None or not stream.isatty():
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    stream.flush()
    screen = os.dup(2)
    os.dup2(log, 2)
    os.close(log)
    terminal = os.fdopen(screen, "w", encoding=stream.encoding, errors="backslashreplace", buffering=1)
    sys.__stderr__ = terminal  # pyright: ignore[reportConstantRedefinition] (Textual's driver draws on it)
    try:
        yield
    finally:
        sys.__stderr__ = stream  # pyright: ignore[reportConstantRedefinition]
        with suppress(OSError):
            terminal.flush()
        os.dup2(screen, 2)
        terminal.close()

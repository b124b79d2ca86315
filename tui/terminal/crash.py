"""When the app fails in spite of everything: a report in a file, a sentence on the terminal, and the chat is safe.

What native libraries write to file descriptor 2 goes to a file too, and not into the middle of the screen.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LOG_BYTES = 1 << 20


def log_to(path: Path) -> None:
    """The program's own log goes to a file: the screen is taken."""
    root = logging.getLogger("dspark")
    if any(isinstance(h, logging.handlers.RotatingFileHandler) for h in root.handlers):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", delay=True
        )
    except OSError:
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.propagate = False


def report(error: BaseException, folder: Path) -> str:
    """Write the report; the sentence that says where it is. Holds no text of any chat."""
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    lines = [f"dspark-chat {_version('dspark-chat')}", f"textual {_version('textual')}", platform.platform()]
    lines += ["", *traceback.format_exception(type(error), error, error.__traceback__)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
    except OSError:
        return f"The app failed ({type(error).__name__}: {error}). The chat is saved; -c goes on with it."
    return f"The app failed; the chat is saved, and dspark-chat -c goes on with it. What happened is in {path}."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


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

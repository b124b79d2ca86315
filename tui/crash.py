"""When the app fails in spite of everything: a report in a file, a sentence on the terminal, and the chat is safe."""

from __future__ import annotations

import logging
import logging.handlers
import platform
import time
import traceback
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

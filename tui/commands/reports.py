"""Texts to read, for the app's screens and for the plain mode: doctor's report, and the end of the log. No widgets."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from engine import paths
from engine.config import Config

LINES = 400
"""Of the log that are shown."""


def doctor_text(config: Config, engine: object = None) -> str:
    """What `dspark-chat doctor` prints, examined now. Takes a second, and belongs on a worker thread."""
    from engine import __version__
    from engine.diagnostics import doctor

    run: Any = getattr(engine, "run_exclusive", None)

    def facts() -> list[doctor.Fact]:
        return doctor.examine(config.folders)

    # Its measurements are MLX work, which belongs on the model thread and between two rounds.
    return doctor.report(run(facts) if run is not None else facts(), config, __version__)


def log_text() -> str:
    """The end of the program's own log, and of what libraries wrote to the terminal."""
    parts: list[str] = []
    for name in ("dspark.log", "stderr.log"):
        text = tail(paths.state() / name)
        if text:
            parts.append(f"{paths.state() / name}\n\n{text}")
    return "\n\n".join(parts) or "Nothing was written to the log yet."


def tail(path: Path, lines: int = LINES) -> str:
    """The last lines of a file; empty when it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return "".join(deque(file, lines)).rstrip("\n")
    except OSError:
        return ""

"""Getting ready, told on standard error: one line that is rewritten on a terminal, plain lines elsewhere when asked."""

from __future__ import annotations

import time
from typing import Any, TextIO

_WORDS = {
    "size": "asking how large {text} is",
    "download": "downloading {text}",
    "verify": "checking {text}",
    "load": "loading {text}",
    "warmup": "measuring {text}",
}
_CLEAR = "\r\x1b[2K"


class Reporter:
    """Takes `engine.hub.Progress`. Says nothing when quiet, and nothing that a pipe did not ask for."""

    def __init__(self, out: TextIO, *, quiet: bool = False, verbose: bool = False) -> None:
        self._out = out
        self._live = out.isatty() and not quiet
        self._lines = verbose and not self._live and not quiet
        self._last = ("", 0.0)
        self._shown = False

    def progress(self, step: Any) -> None:
        words = _WORDS.get(step.stage, "").format(text=step.text)
        now = time.monotonic()
        if not words or (step.stage == self._last[0] and now - self._last[1] < 0.1 and step.done != step.total):
            return
        fresh = step.stage != self._last[0]
        self._last = (step.stage, now)
        if self._live:
            self._out.write(_CLEAR + words + amount(step.done, step.total))
            self._out.flush()
            self._shown = True
        elif self._lines and fresh:
            self._out.write(f"{words}\n")

    def done(self) -> None:
        """Leave the line as it was found."""
        if self._shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._shown = False


def amount(done: int, total: int) -> str:
    if not total:
        return ""
    return f" {done / 1e6:.0f} of {total / 1e6:.0f} MB ({100 * done // total} %)"

"""Getting ready, told on standard error: one line that is rewritten on a terminal, plain lines elsewhere when asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from engine.errors import human_bytes

if TYPE_CHECKING:
    from engine.hub import Progress

_CLEAR = "\r\x1b[2K"


class Reporter:
    """Takes `engine.hub.Progress`. Says nothing when quiet, and nothing that a pipe did not ask for."""

    def __init__(self, out: TextIO, *, quiet: bool = False, verbose: bool = False) -> None:
        self._out = out
        self._live = out.isatty() and not quiet
        self._lines = verbose and not self._live and not quiet
        self._last = ("", 0.0)
        self._shown = False

    def progress(self, step: Progress) -> None:
        words, now = step.words, time.monotonic()
        again = step.stage == self._last[0] and step.stage != "note"
        if not words or (again and now - self._last[1] < 0.1 and step.done != step.total):
            return
        self._last = (step.stage, now)
        if self._live:
            self._out.write(_CLEAR + words + amount(step.done, step.total))
            self._out.flush()
            self._shown = True
        elif self._lines and not again:
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
    return f" {human_bytes(done)} of {human_bytes(total)} ({100 * done // total} %)"

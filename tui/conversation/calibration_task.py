"""Measuring this machine for the loaded model: at most one run at a time, which can be stopped. No widgets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from engine.errors import Cancelled
from tui.conversation.session import ChatSession

log = logging.getLogger("dspark.tui")


class CalibrationTask:
    """`measure` runs on a thread of the caller's."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._stop: threading.Event | None = None
        """Set to end the run under way."""

    @property
    def running(self) -> bool:
        return self._stop is not None

    def begin(self) -> str | None:
        """Take the task; a sentence says why not."""
        engine: Any = self._session.engine
        if getattr(engine, "calibrator", None) is None or self._session.busy:
            return "The model is not loaded, or busy; try again in a moment."
        if self._stop is not None:
            return "This machine is being measured; /calibrate stop stops that."
        self._stop = threading.Event()
        return None

    def stop(self) -> str | None:
        if self._stop is None:
            return "Nothing is being measured."
        self._stop.set()
        return None

    def measure(self, progress: Callable[[str, float], None], leaving: Callable[[], bool]) -> str:
        """Measure; the sentence about what went wrong, or nothing."""
        engine: Any = self._session.engine
        stop = self._stop
        assert stop is not None
        try:
            engine.calibrator.measure(force=True, progress=progress, stop=lambda: leaving() or stop.is_set())
        except Cancelled:
            return "Measuring was stopped; what was known before still holds."
        except Exception as error:  # the edge of measuring: the screen says it as a sentence
            log.exception("measuring failed")
            return f"Measuring failed: {error}"
        return ""

    def end(self) -> str:
        """Give the task back; what is known of this machine now."""
        self._stop = None
        view: Any = getattr(self._session.engine, "calibration", None)
        if view is None:
            return "Measured."
        knee, rate = getattr(view, "knee", None), getattr(view, "rate", 0.0)
        return f"Measured: knee {knee or 'none'}, draft length {getattr(view, 'cap', 0)}, about {rate:.1f} tok/s."

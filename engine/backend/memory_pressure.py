"""Watches how short the machine is of memory, and asks for some back when it is.

Edge-triggered: one call when a worse level is reached, another after a while if it lasts. Knows no model; what is given
back is the caller's matter.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from engine.errors import EngineClosed

Level = Literal["ok", "warn", "critical"]
Shed = Callable[[Literal["warn", "critical"]], object]

POLL_S = 3.0
REARM_S = 120.0
"""A level that lasts is answered again after this long."""
WARN_SHARE = 0.08
CRITICAL_SHARE = 0.03
"""Of the memory, what must be available on Linux."""
_MEMINFO = Path("/proc/meminfo")
_RANK: dict[Level, int] = {"ok": 0, "warn": 1, "critical": 2}


def level() -> Level:
    """How short of memory the machine is now; `ok` where it does not say."""
    return _macos() if sys.platform == "darwin" else linux_level(_MEMINFO)


def linux_level(meminfo: Path) -> Level:
    try:
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        share = int(rows["MemAvailable"].split()[0]) / int(rows["MemTotal"].split()[0])
    except (OSError, KeyError, ValueError, IndexError, ZeroDivisionError):
        return "ok"
    return "critical" if share < CRITICAL_SHARE else "warn" if share < WARN_SHARE else "ok"


def _macos() -> Level:
    value, size = ctypes.c_int(0), ctypes.c_size_t(4)
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    name = b"kern.memorystatus_vm_pressure_level"
    if library.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0):
        return "ok"
    return "critical" if value.value >= 4 else "warn" if value.value >= 2 else "ok"


class PressureGuard:
    """Decides when to shed. `check` is one look; `start` looks every few seconds on a thread of its own."""

    def __init__(
        self, shed: Shed, read: Callable[[], Level] = level, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shed = shed
        self._read = read
        self._clock = clock
        self._seen: Level = "ok"
        self._answered = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.sheds = 0

    def check(self) -> Level:
        """Look once; ask for memory when the level became worse, or still is bad after a while."""
        now, seen = self._clock(), self._read()
        worse = _RANK[seen] > _RANK[self._seen]
        lasting = seen != "ok" and now - self._answered >= REARM_S
        self._seen = seen
        if seen != "ok" and (worse or lasting):
            self._answered = now
            self.sheds += 1
            self._shed(seen)
        return seen

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="dspark-pressure", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(POLL_S):
            with contextlib.suppress(EngineClosed):
                self.check()

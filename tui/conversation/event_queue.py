"""From the model thread to the screen's: a queue, and one wake-up when it stops being empty.

The engine calls `put` for every event and never waits; the screen drains about 30 times a second while there is
something to drain, and has no timer running while there is not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from engine.types import Event


class EventQueue:
    """Single consumer, any number of producers. `wake` must be callable from any thread."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._queue: deque[Event] = deque()
        self._wake = wake
        self._lock = threading.Lock()
        self.awake = False
        """Whether somebody drains, or was asked to."""

    def put(self, event: Event) -> None:
        """From the model thread."""
        with self._lock:
            self._queue.append(event)
            sleeping, self.awake = not self.awake, True
        if sleeping:
            self._wake()

    def drain(self) -> Iterator[Event]:
        """From the screen's thread: all that has come so far."""
        for _ in range(len(self._queue)):
            yield self._queue.popleft()

    def sleep(self) -> bool:
        """Say that draining stops; False when something came in the meantime and it must go on."""
        with self._lock:
            self.awake = bool(self._queue)
        return not self.awake

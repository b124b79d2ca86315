"""Between the terminal and the app: torn mouse reports are dropped, a wheel that comes as arrow keys is a wheel.

A report that a slow line tears apart reaches the parser as keys, and would be typed into the message. Keys that could
be the beginning of one wait a few hundredths of a second for the rest. Knows keys and a clock; no screen.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from textual import events
from textual.driver import Driver
from textual.message import Message

from tui.settings.preferences import Mouse

WAIT = 0.04
"""How long a key waits to see whether it begins a report; less than a person notices."""
TORN = 1.0
"""How long the rest of a report may take once it is surely one."""
PAIR = 0.012
"""Two equal arrow keys closer than this come from a wheel: held keys repeat at a third of that rate at most."""
_BEGUN = re.compile(r"\x1b?\[?(?:(?<=\[)<(?:\d{1,4}(?:;\d{0,5}){0,2})?)?")
_WHOLE = re.compile(r"\x1b?\[<\d{1,4};\d{1,5};\d{1,5}[Mm]")
_SURE = re.compile(r"\x1b?\[<\d{1,4};[\d;]*")


class Wheel(Message):
    """The wheel was turned, in a terminal that tells so by arrow keys."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        """`up` or `down`."""


@dataclass
class KeyFilter:
    """Keys in, messages out; what waits comes out of `late` when its time is over."""

    wheel: bool = False
    """Arrow keys may come from a wheel."""
    clock: Callable[[], float] = time.monotonic
    _held: list[Message] = field(default_factory=list)
    _text: str = ""
    _until: float = 0.0
    _turning: str = ""
    """The arrow that a wheel turns just now."""
    _turned_at: float = 0.0

    @property
    def due(self) -> float | None:
        """When `late` should be asked; None when nothing waits."""
        return self._until if self._held else None

    def feed(self, message: Message) -> list[Message]:
        """One message from the terminal; what the app should get of it now."""
        if not isinstance(message, events.Key):
            return [*self.flush(), message]
        out: list[Message] = []
        if self.wheel and message.key in ("up", "down"):
            return self._arrow(message)
        char = "\x1b" if message.key == "escape" else message.character or ""
        if self._held and self._text and _BEGUN.fullmatch(self._text + char) and char:
            self._hold(message, char)
            return out
        if self._held and char in ("M", "m") and _WHOLE.fullmatch(self._text + char):
            self._forget()
            return out
        out += self.flush()
        if char in ("\x1b", "["):
            self._hold(message, char)
            return out
        return [*out, message]

    def late(self) -> list[Message]:
        """What waited too long: keys come out, a torn report does not."""
        if not self._held or self.clock() < self._until:
            return []
        if _SURE.fullmatch(self._text):
            self._forget()
        return self.flush()

    def flush(self) -> list[Message]:
        held = self._held
        self._forget()
        return held

    def _arrow(self, message: events.Key) -> list[Message]:
        now = self.clock()
        if self._turning == message.key and now - self._turned_at < PAIR:
            self._turned_at = now
            return [Wheel(message.key)]
        if self._held and not self._text and isinstance(self._held[0], events.Key) and self._held[0].key == message.key:
            self._forget()
            self._turning, self._turned_at = message.key, now
            return [Wheel(message.key), Wheel(message.key)]
        out = self.flush()
        self._held, self._until, self._turning = [message], now + PAIR, ""
        return out

    def _hold(self, message: Message, char: str) -> None:
        self._held.append(message)
        self._text += char
        self._until = self.clock() + (TORN if _SURE.fullmatch(self._text) else WAIT)

    def _forget(self) -> None:
        self._held, self._text = [], ""


def driver(base: type[Driver], mouse: Mouse) -> type[Driver]:
    """The platform's driver with the filter before it."""

    class FilteredDriver(base):
        """Passes keys through a `KeyFilter`."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._filter = KeyFilter(wheel=mouse == "wheel")
            self._lock = threading.RLock()
            self._timer: threading.Timer | None = None

        def start_application_mode(self) -> None:
            super().start_application_mode()
            if mouse != "on":
                # Alternate scroll: the wheel as arrow keys while the alternate screen is shown, or never.
                self.write("\x1b[?1007h" if mouse == "wheel" else "\x1b[?1007l")

        def process_message(self, message: Message) -> None:
            with self._lock:
                self._pass(self._filter.feed(message))

        def _pass(self, messages: Sequence[Message]) -> None:
            for message in messages:
                super().process_message(message)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            due = self._filter.due
            if due is not None:
                self._timer = threading.Timer(max(0.0, due - time.monotonic()), self._late)
                self._timer.daemon = True
                self._timer.start()

        def _late(self) -> None:
            with self._lock:
                self._pass(self._filter.late())

    return FilteredDriver

"""Text that may have been written by a model, a file name or a server's error, made safe for a terminal.

Removes control characters and whole escape sequences (CSI, OSC, DCS, APC, PM, SOS, 7-bit and 8-bit), also when they are
split over pieces, and the controls that reorder text. Newlines and tabs stay. Knows no terminal library.
"""

from __future__ import annotations

import re

LIMIT = 4096
"""Characters that an unterminated string sequence may swallow; a newline ends it sooner."""

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STRINGS = "]PX^_"
_C1 = {"\x9b": "csi", "\x9d": "string", "\x90": "string", "\x98": "string", "\x9e": "string", "\x9f": "string"}


class Sanitizer:
    """One per stream. `feed` returns what may be shown; the state of a half-seen sequence is carried over."""

    def __init__(self) -> None:
        self._state = ""
        self._swallowed = 0

    def feed(self, text: str) -> str:
        if not self._state and not _UNSAFE.search(text):
            return text
        return "".join(char for char in text if self._keeps(char))

    def _keeps(self, char: str) -> bool:
        """Advance by one character; whether it is shown."""
        match self._state:
            case "esc":
                return self._after_escape(char)
            case "csi" if "\x20" <= char <= "\x3f":
                return False
            case "csi":
                self._state = ""
                return not "\x40" <= char <= "\x7e" and self._plain(char)
            case "string" | "string-esc":
                return self._in_string(char)
            case _:
                return self._plain(char)

    def _plain(self, char: str) -> bool:
        if char == "\x1b":
            self._state = "esc"
            return False
        if char in _C1:
            self._state, self._swallowed = _C1[char], 0
            return False
        return _UNSAFE.match(char) is None

    def _after_escape(self, char: str) -> bool:
        if char == "[":
            self._state = "csi"
        elif char in _STRINGS:
            self._state, self._swallowed = "string", 0
        elif "\x20" <= char <= "\x2f":
            pass  # an intermediate: the final character is still to come
        elif "\x30" <= char <= "\x7e":
            self._state = ""
        else:
            self._state = ""
            return self._plain(char)
        return False

    def _in_string(self, char: str) -> bool:
        if self._state == "string-esc" and char != "\\":
            self._state = "esc"  # not the terminator: a new sequence begins
            return self._after_escape(char)
        self._swallowed += 1
        if char == "\x1b":
            self._state = "string-esc"
        elif char in ("\x07", "\x9c") or self._state == "string-esc" or self._swallowed >= LIMIT:
            self._state = ""
        elif char == "\n":
            self._state = ""
            return True
        return False


def clean(text: str) -> str:
    """One finished text, made safe."""
    return Sanitizer().feed(text)


def one_line(text: str) -> str:
    """The same on a single line, for titles, file names and errors."""
    return " ".join(clean(text).split())

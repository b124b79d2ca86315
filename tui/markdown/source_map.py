"""Rendered text back to its source: which provenance each shown character has.

Markdown drops and moves characters, so the rendered pieces are looked up in the source in order: exactly where they
stand verbatim, else character by character with a short look-ahead. What cannot be found has no provenance.
"""

from __future__ import annotations

from tui.provenance import NONE

LOOK_AHEAD = 24
"""Characters of markup skipped at most between two shown ones."""


class Aligner:
    """A pointer into the source that only moves forward."""

    def __init__(self, source: str, prov: bytes, start: int = 0, end: int | None = None) -> None:
        self._source = source
        self._prov = prov
        self.at = start
        self.end = len(source) if end is None else end

    def take(self, text: str) -> bytes:
        """Provenance of `text`, the next thing shown."""
        if not text:
            return b""
        found = self._source.find(text, self.at, min(self.end, self.at + LOOK_AHEAD + len(text)))
        if found >= 0:
            self.at = found + len(text)
            return self._prov[found : self.at]
        return bytes(self._one(char) for char in text)

    def take_as(self, text: str, markup: str) -> bytes:
        """Provenance of `text` written as `markup` (an escape, an entity): that of its last character, which is the
        one that completed it."""
        found = self._source.find(markup, self.at, min(self.end, self.at + LOOK_AHEAD + len(markup)))
        if found < 0:
            return self.take(text)
        self.at = found + len(markup)
        return self._prov[self.at - 1 : self.at] * len(text)

    def skip(self, text: str) -> None:
        """Move past `text` when it is the next thing in the source."""
        if self._source.startswith(text, self.at):
            self.at += len(text)

    def seek(self, offset: int) -> None:
        """Move forward to `offset`."""
        self.at = max(self.at, min(offset, self.end))

    def _one(self, char: str) -> int:
        blank = char.isspace()
        for i in range(self.at, min(self.at + LOOK_AHEAD, self.end)):
            if self._source[i] == char or (blank and self._source[i].isspace()):
                self.at = i + 1
                return self._prov[i]
        return NONE

"""The raw view: tokens as they came, round by round, with what was proposed and turned down. No Markdown.

The same interface as a Markdown document, so a view can show either.
"""

from __future__ import annotations

from collections.abc import Callable

from tui.markdown.lines import BLANK, Flow, Line
from tui.provenance import REJECTED

Decode = Callable[[tuple[int, ...]], str]


class Trace:
    """Append tokens, read rows. A finished source line is wrapped once."""

    def __init__(self, width: int = 80) -> None:
        self.width = max(1, width)
        self._items: list[tuple[str, str, int]] = []
        self._closed: list[Line] = []
        self._open: list[Line] = []
        self._flow = Flow()
        self._token = self._first = 0
        self._stale = False

    def token(self, text: str, code: int) -> None:
        """One committed token; neighbours alternate in background, so that boundaries show."""
        self._token += 1
        self._put(text, "token-odd" if self._token % 2 else "token-even", code)

    def round(self, rejected: str) -> None:
        """The end of a round: what was turned down in it, then a bar."""
        if rejected:
            self._put(rejected.replace("\n", "⏎"), "rejected", REJECTED)
        self._put("│", "round-bar", 0)

    def resize(self, width: int) -> None:
        if width == self.width:
            return
        self.width = max(1, width)
        items, self._items = self._items, []
        self._closed, self._open, self._flow = [], [], Flow()
        for item in items:
            self._put(*item)

    def settle(self) -> int:
        """First row that may have changed."""
        if not self._stale:
            return len(self)
        self._stale = False
        self._open = self._flow.wrapped(self.width) if self._flow.text else []
        return self._first

    def __len__(self) -> int:
        return len(self._closed) + len(self._open)

    def line(self, y: int) -> Line:
        n = len(self._closed)
        if y < n:
            return self._closed[y]
        return self._open[y - n] if y - n < len(self._open) else BLANK

    def _put(self, text: str, style: str, code: int) -> None:
        if not self._stale:
            self._first = len(self._closed)
        self._items.append((text, style, code))
        self._stale = True
        parts = text.split("\n")
        for n, part in enumerate(parts):
            last = n == len(parts) - 1
            shown = part if last else part + "⏎"
            self._flow.add(shown, style, bytes((code,)) * len(shown))
            if not last:
                self._closed += self._flow.wrapped(self.width)
                self._flow = Flow()

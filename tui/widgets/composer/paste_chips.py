"""Long pastes as one short word in the message being written: `[pasted 214 lines]`. Pure.

The word stands for the whole text: it moves, is deleted and is sent as one, and opens on request. A word that only
looks like one is text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LINES = 10
MAX_CHARACTERS = 1000
"""A paste above either becomes a chip."""
_LABEL = re.compile(r"\[pasted [0-9,]+ (?:lines|characters)(?: #\d+)?\]")


class Chips:
    """The chips of one message, and of those that were recalled into it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        """What each label stands for."""

    @staticmethod
    def wanted(text: str) -> bool:
        """Whether a paste is long enough for a chip."""
        return text.count("\n") >= MAX_LINES or len(text) > MAX_CHARACTERS

    def add(self, text: str) -> str:
        """A label for `text`: the same for the same text, and no other's."""
        lines = text.rstrip("\n").count("\n") + 1
        name = f"pasted {lines:,} lines" if lines > MAX_LINES else f"pasted {len(text):,} characters"
        label, number = f"[{name}]", 1
        while self.texts.get(label, text) != text:
            number += 1
            label = f"[{name} #{number}]"
        self.texts[label] = text
        return label

    def know(self, texts: Mapping[str, str]) -> None:
        """Take the chips of a message that comes back."""
        self.texts.update(texts)

    def used(self, shown: str) -> dict[str, str]:
        """Those that occur in `shown`."""
        return {label: self.texts[label] for label in _LABEL.findall(shown) if label in self.texts}

    def expand(self, shown: str) -> str:
        """The whole message."""
        return _LABEL.sub(lambda match: self.texts.get(match[0], match[0]), shown)

    def fold(self, text: str) -> str:
        """The other way: texts that are still there in one piece become their labels again."""
        for label, whole in sorted(self.texts.items(), key=lambda item: -len(item[1])):
            text = text.replace(whole, label)
        return text

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Where in a line chips stand."""
        return [match.span() for match in _LABEL.finditer(line) if match[0] in self.texts]

    def around(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that a column lies strictly within."""
        return next(((a, b) for a, b in self.spans(line) if a < column < b), None)

    def touching(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that a column lies within or at an end of."""
        return next(((a, b) for a, b in self.spans(line) if a <= column <= b), None)

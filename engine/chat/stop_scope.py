"""Where in a generated text stop strings count: in what the reader is shown, never in reasoning or in a call's markup.

Knows no tokens; `Finish` decides what ends.
"""

from __future__ import annotations

from engine.chat.reasoning import ThinkSplitter


class WholeText:
    """Everything is shown."""

    def __init__(self) -> None:
        self.settled = 0

    def feed(self, text: str) -> list[tuple[int, str]]:
        start, self.settled = self.settled, self.settled + len(text)
        return [(start, text)]


class AnswerText:
    """The answer without the reasoning around it."""

    def __init__(self, splitter: ThinkSplitter) -> None:
        """splitter: one for this generation alone."""
        self._splitter = splitter

    @property
    def settled(self) -> int:
        return self._splitter.given

    def feed(self, text: str) -> list[tuple[int, str]]:
        return [(s.start, s.text) for s in self._splitter.feed(text) if s.kind == "answer"]

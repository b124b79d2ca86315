"""How much of a prompt is read at once while other requests wait for their next token.

What a token costs is taken from the last chunk, so the pace follows the machine. Knows no clock and no model.
"""

from __future__ import annotations

STALL_MS = 250.0
"""Longest wait of a running request for a part of another one's prompt: what a reader does not yet take for a halt."""
FIRST = 32
"""Tokens of the first chunk, when nothing is known."""
LEAST = 16
"""A prompt is read to its end on any machine; and what so few tokens cost says little about many."""


class Pace:
    """The pace of one engine."""

    def __init__(self, stall_ms: float = STALL_MS) -> None:
        """stall_ms: 0 reads whole chunks whoever waits."""
        self.stall_ms = stall_ms
        self.ms_per_token = 0.0

    def tokens(self, most: int, *, waited_for: bool, spent_ms: float = 0.0) -> int:
        """Tokens of the next chunk, `most` when nobody waits for it. spent_ms: how long somebody has waited already."""
        if not waited_for or not self.stall_ms:
            return most
        if not self.ms_per_token:
            return min(most, FIRST)
        return min(most, max(LEAST, int((self.stall_ms - spent_ms) / self.ms_per_token)))

    def goes_on(self, spent_ms: float) -> bool:
        """Whether another chunk fits into the wait."""
        return spent_ms + LEAST * self.ms_per_token < self.stall_ms

    def learn(self, tokens: int, ms: float) -> None:
        if tokens >= LEAST and ms > 0:
            self.ms_per_token = ms / tokens

"""When the next plain round may start before the one under way is read.

A plain round keeps its one row whatever is sampled, so the next one can be built on the unread token. That gains the
time in which the device would wait for the host, and is right whenever nobody would have proposed. A copy that only
that token makes possible begins one round later: what is lost then is at most a plain step. So it is done where copies
begin seldom enough. Knows no clock: milliseconds come in.
"""

from __future__ import annotations

_FADE = 0.97
"""A round counts half after some twenty more."""


class Idle:
    """Share of a plain round in which the device waits for the host, were every round read before the next is built."""

    def __init__(self) -> None:
        self._host, self._whole = 0.0, 0.0

    def observe(self, build_ms: float, host_ms: float, whole_ms: float) -> None:
        """One plain round: building its graph, working off its token, and from the end of the one before to its own."""
        self._host = _FADE * self._host + build_ms + host_ms
        self._whole = _FADE * self._whole + whole_ms

    @property
    def share(self) -> float:
        """0..1."""
        return min(1.0, self._host / self._whole) if self._whole > 0.0 else 0.0


class Starts:
    """How often a part of a chain that had nothing to propose has something one token later, in one sequence."""

    def __init__(self) -> None:
        self._starts, self._rounds = 0.5, 6.0
        self._silent: frozenset[str] = frozenset()

    def observe(self, silent: frozenset[str]) -> None:
        """The parts that have nothing to propose as far as tokens are known; empty in a round that drafts."""
        if self._silent:
            self._starts = _FADE * self._starts + (not self._silent <= silent)
            self._rounds = _FADE * self._rounds + 1.0
        self._silent = silent

    @property
    def rate(self) -> float:
        """A plain round."""
        return self._starts / self._rounds

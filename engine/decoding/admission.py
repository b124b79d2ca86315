"""Which requests may be under way together: their states and contexts, as long as they may get, fit a byte budget.

Rows of a batch share buffers as long as the longest of them, so what a row costs depends on its neighbours. Counts
before anything is allocated; what a buffer grows ahead of its need is not in it, which the machine's reserve
(`memory.USABLE`) has to cover. Knows sizes; no queue, and evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.drafters.chain import Chain
from engine.errors import RequestTooLarge, human_bytes
from engine.kv_cache.full import round_up
from engine.targets.base import Target
from engine.targets.memory_estimate import state_cost


@dataclass(frozen=True, slots=True)
class Need:
    """What one request may come to take."""

    tokens: int
    """Its longest sequence, in whole steps of a buffer."""
    own: int
    """Bytes that do not depend on its neighbours: states of fixed size, contexts of its drafters."""


class Admission:
    """The sizes of one engine's rows, and the budget that they share."""

    def __init__(self, target: Target, budget: int = 0) -> None:
        """budget: bytes for all rows together; 0 sets no limit."""
        self.budget = budget
        self._cost = state_cost(target)
        self._context = target.spec.context

    def need(self, prompt: int, answer: int, chain: Chain) -> Need:
        """prompt, answer: tokens, the answer's at most."""
        tokens = min(prompt + answer, self._context)
        drafting = sum(part.context_bytes(tokens) for part in chain.parts)
        return Need(round_up(tokens), self._cost.fixed + drafting)

    def bytes(self, needs: Sequence[Need]) -> int:
        """What these rows may take as one batch."""
        longest = max((n.tokens for n in needs), default=0)
        return len(needs) * longest * self._cost.per_token + sum(n.own for n in needs)

    def fits(self, running: Sequence[Need], one: Need) -> bool:
        """Whether one more row fits beside those that run; alone, what `check` let through always does."""
        return not self.budget or not running or self.bytes([*running, one]) <= self.budget

    def check(self, prompt: int, one: Need) -> None:
        """Refuse what would wait for ever.

        Raises:
            RequestTooLarge: with the numbers.
        """
        needed = self.bytes([one])
        if self.budget and needed > self.budget:
            raise RequestTooLarge(
                f"This request needs {human_bytes(needed)} for a prompt of {prompt:,} tokens and its answer "
                f"({one.tokens:,} tokens together), and {human_bytes(self.budget)} are there for running requests: "
                "ask for a shorter answer (max_tokens), "
                "shorten the prompt, or start with --kv-bits 8 or a larger --batch-memory.",
                needed,
                self.budget,
            )


def rows_budget(memory: int, weights: int, cache: int, whole: int) -> int:
    """Bytes for running requests on this machine, never less than one request as long as the window.

    memory: what may be used; cache: the prefix cache's budget; whole: bytes of one full window. 0 when not known.
    """
    return max(memory - weights - cache, whole) if memory else 0

"""What policies learn, kept between the requests of a conversation and, faintly, between conversations.

Each conversation has controllers of its own for each drafter, so that one client's text does not set another's draft
length; a new one starts from the pair's prior, which all of them move a little. Knows no file: the store does.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from engine.decoding.draft_length.acceptance import Acceptance, Prior, Timings
from engine.decoding.draft_length.controller import Controller, CopyController
from engine.decoding.draft_length.cost_model import Costs

SETTLED = 320
"""Drafting rounds after which a pair's prior has moved all the way to what they showed."""


@dataclass(slots=True)
class Memory:
    """All that the policies of one conversation learn about one drafter, or about the parts of one chain."""

    prior: Prior = field(default_factory=Prior)
    timings: Timings = field(default_factory=Timings)
    copy_timings: Timings = field(default_factory=Timings)
    settled: int = 0
    """Drafting rounds that already moved the pair's prior."""
    _costs: Costs | None = None
    _controllers: tuple[Controller, CopyController] | None = None

    @property
    def believed(self) -> Acceptance | None:
        """Acceptance of the learned drafter here, once somebody measured what it costs."""
        return self._controllers[0].acceptance if self._controllers else None

    def controllers(self, costs: Costs) -> tuple[Controller, CopyController]:
        """For the learned drafter and for lookup. Their state survives requests, but not new cost curves."""
        if self._controllers is None or self._costs != costs:
            self._costs = costs
            self._controllers = (
                Controller(costs, Acceptance(self.prior), self.timings),
                CopyController(costs.without_draft(), self.copy_timings),
            )
        return self._controllers


class Book:
    """Memories by drafter and conversation. One engine, one book, used on the model thread only."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._memories: OrderedDict[tuple[str, str], Memory] = OrderedDict()
        self._priors: dict[str, Prior] = {}
        self._timings: dict[str, tuple[Timings, Timings]] = {}
        self._recent: deque[tuple[str, Memory]] = deque(maxlen=16)
        """Memories whose requests may have gone on since they were last asked."""

    def prior(self, drafter: str) -> Prior:
        return self._priors.get(drafter, Prior())

    def set_prior(self, drafter: str, prior: Prior) -> None:
        """From text measured during calibration, or from an earlier run."""
        self._priors[drafter] = prior

    def timings(self, drafter: str) -> Timings:
        """How live rounds of a drafter compare with the measured curves."""
        return self._timings.setdefault(drafter, (Timings(), Timings()))[0]

    def open(self, drafter: str, conversation: str = "") -> Memory:
        """The memory to hand to `policy_for`. Without a conversation a request starts from the prior."""
        key = (drafter, conversation)
        for name, recent in self._recent:
            self.settle(name, recent)
        if conversation and key in self._memories:
            self._memories.move_to_end(key)
            return self._memories[key]
        timings = self._timings.setdefault(drafter, (Timings(), Timings()))
        memory = Memory(self.prior(drafter), *timings)
        self._recent.append((drafter, memory))
        if conversation:
            self._memories[key] = memory
            while len(self._memories) > self._limit:
                self._memories.popitem(last=False)
        return memory

    def settle(self, drafter: str, memory: Memory) -> None:
        """Let the pair's prior move a little towards what a conversation has shown since last time."""
        believed = memory.believed
        if believed is None:
            return
        rounds = min(believed.rounds - memory.settled, SETTLED // 5)
        memory.settled = believed.rounds
        if rounds > 0:
            first, decay = believed.fit()
            old, weight = self.prior(drafter), rounds / SETTLED
            moved = (old.first + weight * (first - old.first), old.decay + weight * (decay - old.decay))
            self._priors[drafter] = Prior(*moved, old.strength)

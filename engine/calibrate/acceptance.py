"""What is believed about a drafter's acceptance, and where the belief is kept between requests.

Chance of draft i, given that all before it stayed: first * decay**i. Two parameters, fitted to decayed counts by
position with the pair's prior as pseudo-counts: fewer follow a drafter that weakens along its block badly, more are
noise. Knows no clock and no file.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from engine.calibrate.cost import TYPICAL

POSITIONS = 32
_DECAYS = tuple(0.70 + 0.03 * i for i in range(13))
_LOW, _HIGH = 0.004, 0.996


@dataclass(frozen=True, slots=True)
class Prior:
    """Acceptance of a pair before this conversation said anything."""

    first: float = TYPICAL
    decay: float = 1.0
    strength: float = 4.0
    """Rounds that it weighs as much as."""

    def chances(self, cap: int) -> tuple[float, ...]:
        return tuple(min(_HIGH, max(_LOW, self.first * self.decay**i)) for i in range(cap))


class Acceptance:
    """Belief about one drafter in one conversation. Old rounds fade with a half-life counted in drafting rounds."""

    def __init__(self, prior: Prior | None = None, half_life: float = 48.0) -> None:
        self.prior = prior or Prior()
        self._keep = 0.5 ** (1.0 / half_life)
        self.reset()

    def reset(self) -> None:
        """Back to the prior: the text has changed its kind."""
        self.rounds = 0
        self._tried = [0.0] * POSITIONS
        self._kept = [0.0] * POSITIONS
        alive = self.prior.strength
        self._fade(1.0)
        for i, chance in enumerate(self.prior.chances(4)):
            self._tried[i] = alive
            alive *= chance
            self._kept[i] = alive

    def observe(self, drafted: int, accepted: int, whole: bool = True) -> None:
        """One drafting round. `whole` is False when a stop or the budget cut it: what follows the cut says nothing."""
        self.rounds += 1
        self._fade(self._keep)
        for i in range(min(accepted, POSITIONS)):
            self._tried[i] += 1.0
            self._kept[i] += 1.0
        if whole and accepted < min(drafted, POSITIONS):
            self._tried[accepted] += 1.0

    def fit(self) -> tuple[float, float]:
        """(first, decay) of highest likelihood on the decayed counts."""
        if self._fit is None:
            total = sum(self._kept)
            best, first, decay = -math.inf, self.prior.first, self.prior.decay
            for candidate in _DECAYS:
                base = total / max(1e-9, sum(n * candidate**i for i, n in enumerate(self._tried) if n > 0.01))
                score = self._likelihood(base, candidate)
                if score > best:
                    best, first, decay = score, base, candidate
            self._fit = (min(_HIGH, max(_LOW, first)), decay)
        return self._fit

    def chances(self, cap: int) -> tuple[float, ...]:
        first, decay = self.fit()
        return tuple(min(_HIGH, max(_LOW, first * decay**i)) for i in range(cap))

    def optimistic(self, cap: int) -> tuple[float, ...]:
        """Chances at one and a half standard deviations above: what still cannot be excluded."""
        first, decay = self.fit()
        n = self._tried[0] + 1.0
        first += 1.5 * math.sqrt(max(first * (1.0 - first), 1.0 / n) / n)
        return tuple(min(_HIGH, max(_LOW, first * decay**i)) for i in range(cap))

    @property
    def per_draft(self) -> float:
        """Share of judged drafts that stayed."""
        return sum(self._kept) / max(1e-9, sum(self._tried))

    def _fade(self, keep: float) -> None:
        self._fit: tuple[float, float] | None = None
        if keep != 1.0:
            self._tried = [x * keep for x in self._tried]
            self._kept = [x * keep for x in self._kept]

    def _likelihood(self, first: float, decay: float) -> float:
        score = 0.0
        for i, (n, s) in enumerate(zip(self._tried, self._kept, strict=True)):
            if n > 0.01:
                chance = min(_HIGH, max(_LOW, first * decay**i))
                score += s * math.log(chance) + (n - s) * math.log(1.0 - chance)
        return score


class Timings:
    """Live rounds against the measured curves, by cap: a common drift (load, heat) and what a cap costs beyond it."""

    def __init__(self) -> None:
        self.drift = 0.0
        self.seen = 0
        self._residual: dict[int, tuple[float, int, int]] = {}

    def observe(self, cap: int, ms: float, predicted: float) -> None:
        """A round's own time against the model's. One spike moves nothing far."""
        if ms <= 0 or predicted <= 0:
            return
        self.seen += 1
        ratio = math.log(ms / predicted)
        ratio = min(self.drift + 0.5, max(self.drift - 0.5, ratio)) if self.seen > 1 else ratio
        value, count, _ = self._residual.get(cap, (0.0, 0, 0))
        weight = max(0.1, 1.0 / (count + 1))
        self._residual[cap] = (value + weight * (ratio - self.drift - value), count + 1, self.seen)
        self.drift += max(0.05, 1.0 / self.seen) * (ratio - self.drift)

    def correction(self, cap: int) -> float:
        """Factor on the model's cost of a cap, relative to the common drift; 1 where nothing recent was seen."""
        value, count, last = self._residual.get(cap, (0.0, 0, 0))
        if count < 4 or self.seen - last > 256:
            near = [v for c, (v, n, at) in self._residual.items() if c > 0 and n >= 4 and self.seen - at <= 256]
            value = sum(near) / len(near) if near and cap > 0 else 0.0
        return math.exp(value)

    @property
    def disagreement(self) -> float:
        """Live time over measured time: more than 1.2 or less than 0.8 for long means that the curves are stale."""
        return math.exp(self.drift)


@dataclass(slots=True)
class Memory:
    """All that the policies of one conversation learn about one drafter (a chain's parts together)."""

    prior: Prior = field(default_factory=Prior)
    learned: Acceptance = field(default_factory=Acceptance)
    lookup: Acceptance = field(default_factory=lambda: Acceptance(LOOKUP_PRIOR))
    timings: Timings = field(default_factory=Timings)
    lookup_timings: Timings = field(default_factory=Timings)


LOOKUP_PRIOR = Prior(first=0.9, strength=4.0)
"""A copy that was found on a long match mostly goes on."""


class Book:
    """Memories by drafter and conversation. A new conversation starts from what the pair did in all others, not
    from what the last one did. One engine, one book, used on the model thread only."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._memories: OrderedDict[tuple[str, str], Memory] = OrderedDict()
        self._priors: dict[str, Prior] = {}
        self._timings: dict[str, tuple[Timings, Timings]] = {}

    def set_prior(self, drafter: str, prior: Prior) -> None:
        """From the model card, or from text measured during calibration."""
        self._priors[drafter] = prior

    def open(self, drafter: str, conversation: str = "") -> Memory:
        """The memory to hand to `policy_for`. Without a conversation a request starts from the prior."""
        key = (drafter, conversation)
        if conversation and key in self._memories:
            self._memories.move_to_end(key)
            return self._memories[key]
        prior = self._priors.get(drafter, Prior())
        timings = self._timings.setdefault(drafter, (Timings(), Timings()))
        memory = Memory(prior, Acceptance(prior), Acceptance(LOOKUP_PRIOR), *timings)
        if conversation:
            self._memories[key] = memory
            while len(self._memories) > self._limit:
                self._memories.popitem(last=False)
        return memory

    def close(self, drafter: str, memory: Memory) -> None:
        """A request ended: let the pair's prior move a little towards it."""
        rounds = min(memory.learned.rounds, 64)
        if rounds < 8:
            return
        first, decay = memory.learned.fit()
        old, weight = self._priors.get(drafter, Prior()), rounds / 320
        self._priors[drafter] = Prior(
            old.first + weight * (first - old.first), old.decay + weight * (decay - old.decay), old.strength
        )

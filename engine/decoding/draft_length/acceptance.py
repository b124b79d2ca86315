"""What is believed about a drafter's acceptance, and about what its rounds really cost.

Chance of draft i, given that all before it stayed: first * decay**i. Two parameters, fitted to decayed counts by
position under the pair's prior: fewer follow a drafter that weakens along its block badly, more are noise. Knows no
clock and no file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.decoding.draft_length.cost_model import TYPICAL

POSITIONS = 32
_DECAYS = tuple(0.70 + 0.03 * i for i in range(13))
_SPREAD = 0.08
"""How far, in log, a conversation's decay lies from its pair's: one that is only drafted one token at a time says
nothing about later positions, and must not look as if it did."""
_LOW, _HIGH = 0.004, 0.996
_STALE = 256
"""Rounds after which a cap's live times say nothing any more."""
STALE_AFTER = 200
"""Rounds of disagreement after which curves count as stale."""
_CLOSE = 16
"""Rounds within which a plain and a drafting one are compared."""


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
        self._tried[0] = self.prior.strength
        self._kept[0] = self.prior.strength * self.prior.first
        self._fade(1.0)

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
        score = -0.5 * (math.log(decay / self.prior.decay) / _SPREAD) ** 2
        for i, (n, s) in enumerate(zip(self._tried, self._kept, strict=True)):
            if n > 0.01:
                chance = min(_HIGH, max(_LOW, first * decay**i))
                score += s * math.log(chance) + (n - s) * math.log(1.0 - chance)
        return score


class Timings:
    """Live rounds against the measured curves.

    Load and heat move all rounds alike and decide nothing, so what is kept are differences between rounds that lie
    close in time: how much dearer drafting is against plain than the curves say, and how much dearer one cap is than
    the others.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.drift = 0.0
        """Log of live over measured time, of plain rounds or what they would be."""
        self._recent: dict[bool, tuple[float, int]] = {}
        """drafting or not -> (log ratio of late, when)."""
        self._gap, self._gaps = 0.0, 0
        self._noise = 0.0
        """Mean deviation of single comparisons from what was believed before each."""
        self._caps: dict[int, tuple[float, int, int]] = {}
        self._off = 0
        """Rounds in a row of which the drift was more than a fifth."""

    def observe(self, cap: int, ms: float, predicted: float) -> None:
        """A round's own time against the model's. One spike moves nothing far."""
        if ms < 1e-6 or predicted < 1e-6:
            return
        self.seen += 1
        ratio, drafting = math.log(ms / predicted), cap > 0
        other = self._recent.get(not drafting)
        if other is not None and self.seen - other[1] <= _CLOSE:
            gap = (ratio - other[0]) if drafting else (other[0] - ratio)
            gap = min(self._gap + 1.0, max(self._gap - 1.0, gap)) if self._gaps else gap
            weight = max(0.1, 1.0 / (self._gaps + 1))
            if self._gaps:
                self._noise += max(0.1, 1.0 / self._gaps) * (abs(gap - self._gap) - self._noise)
            self._gap += weight * (gap - self._gap)
            self._gaps += 1
        late = self._recent.get(drafting)
        value = ratio if late is None else late[0] + 0.1 * (min(late[0] + 1.0, max(late[0] - 1.0, ratio)) - late[0])
        self._recent[drafting] = (value, self.seen)
        if drafting and late is not None:
            own, count, _ = self._caps.get(cap, (0.0, 0, 0))
            self._caps[cap] = (own + max(0.1, 1.0 / (count + 1)) * (ratio - late[0] - own), count + 1, self.seen)
        self.drift += max(0.02, 1.0 / self.seen) * (value - (self._gap if drafting else 0.0) - self.drift)
        self._off = self._off + 1 if not 0.8 <= self.disagreement <= 1.2 else 0

    def correction(self, cap: int) -> float:
        """Factor on the model's cost of a cap against that of a plain step; 1 where live rounds said nothing yet."""
        if cap == 0:
            return 1.0
        own, count, last = self._caps.get(cap, (0.0, 0, 0))
        if self.seen - last > _STALE:
            own, count = 0.0, 0
        gap = self._gap * self._gaps / (self._gaps + 1)
        return math.exp(self._beyond_noise(gap, self._gaps) + self._beyond_noise(own * count / (count + 6), count))

    def _beyond_noise(self, value: float, count: int) -> float:
        """What of a mean over the last rounds (ten weigh, at most) chance does not explain."""
        error = 1.5 * self._noise / math.sqrt(min(max(count, 1), 10))
        return math.copysign(max(0.0, abs(value) - error), value)

    @property
    def unsure(self) -> bool:
        """Whether another plain round beside drafting ones would tell something: few were seen, or they disagree."""
        return self._gaps < 2 or (self._gaps < 8 and abs(self._gap) > 0.15)

    @property
    def disagreement(self) -> float:
        """Live time over measured time: far from 1 for long means that the curves are stale."""
        return math.exp(self.drift)

    @property
    def stale(self) -> bool:
        """Whether the curves should be measured again."""
        return self._off >= STALE_AFTER

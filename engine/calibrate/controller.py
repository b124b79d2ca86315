"""The adaptive draft length of one drafter in one conversation: pick, hold, park, ask again.

    drafting --every 4 rounds--> pick the best cap by (acceptance, cost); change only for 3 %
    drafting --even optimistic acceptance does not pay--> parked
    parked   --a probe round now and then, at most 2 % of the time--> a lucky probe is followed by another
    parked   --recent probes pay--> drafting, with what was believed before forgotten

Knows no model and no clock: rounds come in, lengths go out.
"""

from __future__ import annotations

import math
from collections import deque

from engine.calibrate.acceptance import Acceptance, Timings
from engine.calibrate.cost import Costs, best_cap, committed, constant

REPICK = 4
HYSTERESIS = 1.03
PROBE_BUDGET = 0.02
"""Share of plain decoding's time that asking again may cost while parked."""
PROBE_EVERY = (6, 64)
"""Fewest and most plain rounds between probes: never so rare that friendly text goes unnoticed."""
PLAIN_EVERY = 64
"""While drafting, one plain round in so many keeps the reference honest (and the panel's ratio measured)."""
MIN_ROUNDS = 8
"""Drafting rounds before the first parking: a few unlucky ones at the start say little."""
PROBES = 8


class Controller:
    """One drafter's length. `choose` has no side effects; `observe` moves the state."""

    def __init__(self, costs: Costs, acceptance: Acceptance, timings: Timings) -> None:
        self.costs = costs
        self.acceptance = acceptance
        self.timings = timings
        self.parked = False
        self.cap = 0
        """Current pick while drafting; 0 before the first."""
        self._since_pick = REPICK
        self._since_probe = 0
        self._since_plain = 0
        self._since_parked = 0
        self._lucky = False
        self._probes: deque[tuple[int, int]] = deque(maxlen=PROBES)
        self._setting = (0, 0, 1)

    # Asked before a round ---------------------------------------------------------------------------------------------

    def choose(self, longest: int, depth: int = 0, rows: int = 1) -> int:
        """Draft length for the next round."""
        self._setting = (longest, depth, rows)
        if longest <= 0:
            return 0
        if self.parked:
            return self.probe_cap if self._lucky or self._since_probe >= self.interval else 0
        if self._since_plain >= PLAIN_EVERY:
            return 0
        if self.cap == 0 or self.cap > longest or self._since_pick >= REPICK:
            self._pick()
        return min(self.cap, longest)

    def rate(self, cap: int, *, optimistic: bool = False) -> float:
        """Believed tokens a millisecond at a cap, up to the common drift."""
        _, depth, rows = self._setting
        chances = self.acceptance.optimistic(cap) if optimistic else self.acceptance.chances(cap)
        return committed(chances) / self._price(cap, depth, rows)

    @property
    def probe_cap(self) -> int:
        """Length of a probe: one draft, or more where more cost nearly the same."""
        longest, depth, rows = self._setting
        one = self._price(1, depth, rows)
        wish = best_cap(self.costs, constant(0.5), max(1, min(longest, 4)), depth, rows)
        return max([1] + [c for c in range(2, wish + 1) if self._price(c, depth, rows) <= 1.05 * one])

    @property
    def interval(self) -> int:
        """Plain rounds between probes, so that their expected loss stays in the budget."""
        _, depth, rows = self._setting
        cap = self.probe_cap
        plain = self._price(0, depth, rows)
        loss = self._price(cap, depth, rows) / plain - committed(self.acceptance.chances(cap))
        return min(PROBE_EVERY[1], max(PROBE_EVERY[0], math.ceil(loss / PROBE_BUDGET)))

    # Told after a round -----------------------------------------------------------------------------------------------

    def observe(self, drafted: int, accepted: int, whole: bool, ms: float, depth: int = 0, rows: int = 1) -> None:
        """What a round did. drafted 0 is a plain step; `whole` is False when the round was cut short by a stop."""
        self.timings.observe(drafted, ms, self.costs.round_ms(drafted, depth, rows))
        if drafted == 0:
            self._since_plain = 0
            self._since_probe += 1
            return
        self._since_plain += 1
        self._since_pick += 1
        self.acceptance.observe(drafted, accepted, whole)
        if self.parked:
            self._probed(drafted, accepted)
        elif self.acceptance.rounds >= MIN_ROUNDS and self._since_parked >= MIN_ROUNDS and self._hopeless():
            self.parked, self._lucky, self._since_probe = True, False, 0
            self._probes.clear()
        else:
            self._since_parked += 1

    # ------------------------------------------------------------------------------------------------------------------

    def _price(self, cap: int, depth: int, rows: int) -> float:
        return max(1e-6, self.costs.round_ms(cap, depth, rows)) * self.timings.correction(cap)

    def _pick(self) -> None:
        longest, _, _ = self._setting
        best = max(range(1, longest + 1), key=lambda cap: (self.rate(cap), -cap))
        if not 0 < self.cap <= longest or self.rate(best) > HYSTERESIS * self.rate(self.cap):
            self.cap = best
        self._since_pick = 0

    def _hopeless(self) -> bool:
        longest = max(1, self._setting[0])
        return max(self.rate(cap, optimistic=True) for cap in range(1, longest + 1)) < self.rate(0)

    def _probed(self, drafted: int, accepted: int) -> None:
        self._since_probe = 0
        self._lucky = accepted > 0
        self._probes.append((drafted, accepted))
        recent = Acceptance(self.acceptance.prior)
        for n, k in self._probes:
            recent.observe(n, k)
        _, depth, rows = self._setting
        lucky = sum(1 for _, k in self._probes if k)
        longest = max(1, self._setting[0])
        best = max(committed(recent.chances(cap)) / self._price(cap, depth, rows) for cap in range(1, longest + 1))
        if lucky >= 3 and self._lucky and best > HYSTERESIS * self.rate(0):
            self.acceptance.reset()
            for n, k in self._probes:
                self.acceptance.observe(n, k)
            self.parked, self.cap, self._since_parked = False, 0, 0

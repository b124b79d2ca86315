"""The adaptive draft length of one drafter in one conversation: pick, hold, park, ask again.

    drafting --every 4 rounds--> pick the best cap by (acceptance, cost); change only for 3 %
    drafting --no cap is believed to pay--> parked
    parked   --a probe now and then, whose losses are repaid by plain rounds first--> a lucky one repays itself
    parked   --all that is believed, or the last probes by themselves, pay--> drafting

Knows no model and no clock: rounds come in, lengths go out.
"""

from __future__ import annotations

import math
from collections import deque

from engine.decoding.draft_length.acceptance import Acceptance, Prior, Timings
from engine.decoding.draft_length.cost_model import Costs, best_cap, committed, constant

REPICK = 4
HYSTERESIS = 1.03
PROBE_BUDGET = 0.015
"""Share of plain decoding's time that asking again may cost while parked."""
PROBE_EVERY = (6, 96)
"""Fewest plain rounds after an unlucky probe, and most: never so rare that friendly text goes unnoticed for long."""
PLAIN_EVERY = (12, 64)
"""While drafting, one plain round in so many keeps the reference honest (and the panel's ratio measured): the first
number while live times of plain rounds are unknown or disagree with the curves, the second afterwards."""
MIN_ROUNDS = 6
"""Drafting rounds before the first parking: a few unlucky ones at the start say little."""
FUTILE = 5
"""Rounds at the very start that accepted nothing: they say as much as a longer start with mixed luck."""
HOPEFUL = 8
"""Rounds in a row that accepted nothing, up to which being close to paying is a reason to ask twice as often."""
PATIENCE = 28
"""Plain rounds between probes after that, where the budget would allow more: friendly text is noticed soon enough."""
SLACK = 0.5
"""Debt, in plain steps, up to which a lucky probe is followed by another at once."""
STREAK = 2
"""Lucky probes in a row after which only they are believed: perhaps the text has changed its kind."""


class Controller:
    """A learned drafter's length. `choose` has no side effects; `observe` moves the state."""

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
        self._drafting = 0
        self._unlucky = 0
        """Drafting rounds in a row that accepted nothing."""
        self._debt = 0.0
        """What probes have lost and plain rounds have not yet repaid, in plain steps."""
        self._begun = False
        self._first = True
        self._streak: list[tuple[int, int]] = []
        """(drafted, accepted) of the lucky probes since the last unlucky one."""
        self._setting = (0, 0, 1)

    # Asked before a round ---------------------------------------------------------------------------------------------

    def choose(self, longest: int, depth: int = 0, rows: int = 1) -> int:
        """Draft length for the next round."""
        self._setting = (longest, depth, rows)
        if longest <= 0:
            return 0
        if not self._begun:
            # A pair that is far from paying begins parked, with a probe at once.
            self._begun, self.parked = True, not self._pays(0.9)
        if self.parked:
            return self.probe_cap if self._due else 0
        if self._since_plain >= PLAIN_EVERY[0 if self.timings.unsure else 1]:
            return 0
        if not 0 < self.cap <= longest or self._since_pick >= REPICK or self._drafting < MIN_ROUNDS:
            self._pick()
        return min(self.cap, longest)

    def rate(self, cap: int) -> float:
        """Believed tokens a millisecond at a cap, up to the common drift."""
        _, depth, rows = self._setting
        return committed(self.acceptance.chances(cap)) / self._price(cap, depth, rows)

    @property
    def probe_cap(self) -> int:
        """Length of a probe: one draft, or more where more cost nearly the same."""
        longest, depth, rows = self._setting
        one = self._price(1, depth, rows)
        wish = best_cap(self.costs, constant(0.5), max(1, min(longest, 4)), depth, rows)
        return max([1] + [c for c in range(2, wish + 1) if self._price(c, depth, rows) <= 1.05 * one])

    @property
    def _due(self) -> bool:
        if self._streak and self._debt < SLACK:
            return True
        if self._debt <= 0.0:
            return self._first or self._since_probe >= PROBE_EVERY[0]
        return self._since_probe >= PROBE_EVERY[1]

    # Told after a round -----------------------------------------------------------------------------------------------

    def observe(self, drafted: int, accepted: int, whole: bool, ms: float, depth: int = 0, rows: int = 1) -> None:
        """What a round did. drafted 0 is a plain step; `whole` is False when the round was cut short by a stop."""
        self.timings.observe(drafted, ms, self.costs.round_ms(drafted, depth, rows))
        if drafted == 0:
            self._since_plain = 0
            self._since_probe += 1
            if self.parked:
                self._debt = max(0.0, self._debt - self._repayment)
            return
        self._judge(drafted, accepted, whole)

    def declined(self) -> None:
        """It was asked, and its confidence head thought nothing of its drafts. The round won nothing and cost a draft:
        for what drafting yields here, a draft that was rejected; as the time of a plain step it does not count."""
        self._judge(1, 0, True)

    def _judge(self, drafted: int, accepted: int, whole: bool) -> None:
        self._since_plain += 1
        self._since_pick += 1
        self._unlucky = 0 if accepted else self._unlucky + 1
        self.acceptance.observe(drafted, accepted, whole)
        if self.parked:
            self._probed(drafted, accepted)
        elif (self._drafting >= MIN_ROUNDS and not self._pays()) or self._futile:
            self.parked, self._since_probe = True, 0
            self._debt = max(0.0, self._loss(1, 0))
            self._first, self._streak = False, []
        else:
            self._drafting += 1

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _repayment(self) -> float:
        """What a plain round while parked pays back of what probes have lost."""
        if self._unlucky >= HOPEFUL:
            return min(PROBE_BUDGET, self._loss(self.probe_cap, 0) / PATIENCE)
        # Close to paying, a wrong verdict is the likelier error and probes cost less.
        return PROBE_BUDGET * (2.0 if self._pays(0.8) else 1.0)

    @property
    def _futile(self) -> bool:
        return self._drafting == FUTILE - 1 and self._unlucky >= FUTILE and not self._pays(1.25)

    def _price(self, cap: int, depth: int, rows: int) -> float:
        measured = max(1e-6, self.costs.round_ms(cap, depth, rows)) * self.timings.correction(cap)
        if cap <= 0:
            return measured
        # Whatever noisy rounds say: more rows are not cheaper than one, and a draft is not free.
        return max(measured, 1.01 * self.costs.round_ms(0, depth, rows) + self.costs.draft_ms(cap, rows))

    def _pick(self) -> None:
        longest, _, _ = self._setting
        best = max(range(1, longest + 1), key=lambda cap: (self.rate(cap), -cap))
        if not 0 < self.cap <= longest or self.rate(best) > HYSTERESIS * self.rate(self.cap):
            self.cap = best
        self._since_pick = 0

    def _pays(self, margin: float = 1.0) -> bool:
        longest = max(1, self._setting[0])
        return max(self.rate(cap) for cap in range(1, longest + 1)) > margin * self.rate(0)

    def _probed(self, drafted: int, accepted: int) -> None:
        self._since_probe, self._first = 0, False
        loss = self._loss(drafted, accepted)
        self._debt = max(0.0, loss if accepted else self._debt + loss)
        self._streak = [*self._streak, (drafted, accepted)] if accepted else []
        if accepted and self._pays(HYSTERESIS):
            self._resume()
        elif len(self._streak) >= STREAK:
            believed, self.acceptance = self.acceptance, Acceptance(self.acceptance.prior)
            for n, kept in self._streak:
                self.acceptance.observe(n, kept)
            if self._pays(HYSTERESIS):
                self._resume()
            else:
                self.acceptance = believed

    def _loss(self, drafted: int, accepted: int) -> float:
        """Plain steps that a round cost beyond those it replaced; negative when it won."""
        _, depth, rows = self._setting
        return self._price(drafted, depth, rows) / self._price(0, depth, rows) - (accepted + 1)

    def _resume(self) -> None:
        self.parked, self.cap, self._drafting = False, 0, 0


ORDINARY = 6
"""Longest copy after an ordinary match; longer ones come from long matches and stand or fall by themselves."""
COPY = Prior(first=0.9, strength=4.0)
"""A copy that was found on a long match mostly goes on."""


class CopyController:
    """Lookup's length. It proposes seldom, and chooses its own lengths by how much matched; a proposal costs nothing to
    make. So ordinary and long copies are judged apart, a width is only paid for when used, and what decides parking is
    what its rounds have won: tokens beyond the first, minus what the wider verify cost, in plain steps a proposal.
    """

    def __init__(self, costs: Costs, timings: Timings) -> None:
        self.costs = costs
        self.timings = timings
        self.parked = False
        self.ordinary = Acceptance(Prior(first=0.6, strength=4.0))
        self.long = Acceptance(COPY)
        self._wins: deque[float] = deque(maxlen=16)
        self._since_probe = 0

    def choose(self, longest: int, depth: int = 0, rows: int = 1) -> int:
        """Longest copy to allow in the next round."""
        if longest <= 0:
            return 0
        short = min(longest, ORDINARY)
        if self.parked:
            return short if self._since_probe >= self.interval else 0
        if longest > ORDINARY:
            cap = best_cap(self.costs, self.long.chances, longest, depth, rows, shortest=ORDINARY)
            if cap > ORDINARY:
                return cap
        return best_cap(self.costs, self.ordinary.optimistic, short, depth, rows)

    @property
    def interval(self) -> int:
        """Plain rounds between probes."""
        loss = -sum(self._wins) / max(1, len(self._wins))
        return min(PROBE_EVERY[1], max(PROBE_EVERY[0], math.ceil(loss / PROBE_BUDGET)))

    def observe(self, drafted: int, accepted: int, whole: bool, ms: float, depth: int = 0, rows: int = 1) -> None:
        """What a round did; drafted 0 is a round in which nothing was copied."""
        self.timings.observe(drafted, ms, self.costs.round_ms(drafted, depth, rows))
        if drafted == 0:
            self._since_probe += 1
            return
        (self.long if drafted > ORDINARY else self.ordinary).observe(drafted, accepted, whole)
        plain = self.costs.round_ms(0, depth, rows) * self.timings.correction(0)
        spent = self.costs.round_ms(drafted, depth, rows) * self.timings.correction(drafted)
        self._wins.append(accepted + 1 - spent / plain)
        self._since_probe = 0
        if self.parked:
            recent = list(self._wins)[-3:]
            self.parked = not sum(recent) > 0
        elif len(self._wins) >= MIN_ROUNDS:
            self.parked = sum(self._wins) < 0

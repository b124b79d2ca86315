"""How long a draft to ask for. The loop calls `limit` before a round and `learn` after it.

    cap = min(policy.limit(view), view.remaining - 1)        0: plain step this round
    ... propose(cap), verify, accept ...
    policy.learn(view, round)

A chain is asked once per part, in order, each with a view of its own `source`, `drafter` and `max_draft`: a parked
learned drafter (0) must not silence lookup, and lookup's longer copies must not be cut by the learned drafter's cap.
Knows no concrete target and no concrete drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from engine.decoding.draft_length.controller import Controller, CopyController
from engine.decoding.draft_length.cost_model import Costs, derived_cap
from engine.decoding.draft_length.learned import Memory
from engine.types import Round, Source

FALLBACK = 2
"""Cap of an unmeasured pair whose drafter drafts one token after another."""

EngineCap = int | Literal["auto", "derived", "full"] | None
"""What a user or a card says about draft length; None is auto where the machine was measured."""


@dataclass(frozen=True, slots=True)
class RowView:
    """What a policy may know about a sequence that is about to make a round."""

    depth: int
    """Context length."""
    remaining: int
    """Token budget left; the loop clamps to remaining - 1 itself."""
    max_draft: int
    """Longest proposal of the drafter asked."""
    drafter: str = ""
    source: Source = Source.DRAFT
    """Of the drafter asked: LOOKUP decides its own length, up to what is allowed here."""
    rows: int = 1
    """Sequences that will share the forward."""
    rounds: int = 0
    """Rounds since the request began."""


class CapPolicy(Protocol):
    """Chooses draft lengths for one request. Lives on the model thread."""

    def limit(self, view: RowView) -> int:
        """Longest draft to ask for, 0..view.max_draft; 0 is a plain step this round."""
        ...

    def rests(self, view: RowView) -> bool:
        """Whether this part will not be asked after a plain round either: the next one need not wait for its turn."""
        ...

    def learn(self, view: RowView, round: Round) -> None:
        """What came of it. `view` may be of any part; `round` says who proposed."""
        ...


class Pinned:
    """A cap that somebody chose: obeyed, never adjusted. It holds for the learned drafter and for lookup alike."""

    def __init__(self, cap: int) -> None:
        self.cap = max(0, cap)

    def limit(self, view: RowView) -> int:
        return min(self.cap, view.max_draft)

    def rests(self, view: RowView) -> bool:
        return self.cap == 0

    def learn(self, view: RowView, round: Round) -> None:
        pass


class Full:
    """Whatever the drafter can make."""

    def limit(self, view: RowView) -> int:
        return view.max_draft

    def rests(self, view: RowView) -> bool:
        return False

    def learn(self, view: RowView, round: Round) -> None:
        pass


class Fallback:
    """A fixed cap for a learned drafter on a machine that was not measured; lookup keeps its own lengths."""

    def __init__(self, cap: int) -> None:
        self.cap = cap

    def limit(self, view: RowView) -> int:
        return view.max_draft if view.source is Source.LOOKUP else min(self.cap, view.max_draft)

    def rests(self, view: RowView) -> bool:
        return self.limit(view) == 0

    def learn(self, view: RowView, round: Round) -> None:
        pass


class Derived:
    """The best cap by the measured curves at the pair's acceptance; shortened at depth, priced for the batch."""

    def __init__(self, costs: Costs, memory: Memory | None = None) -> None:
        self.costs = costs
        self._prior = memory.prior.chances if memory else None

    def limit(self, view: RowView) -> int:
        if view.source is Source.LOOKUP:
            return view.max_draft
        return derived_cap(self.costs, view.max_draft, view.depth, view.rows, self._prior)

    def rests(self, view: RowView) -> bool:
        return self.limit(view) == 0

    def learn(self, view: RowView, round: Round) -> None:
        pass


class Adaptive:
    """Starts from the curves and what is known of the pair, then follows this conversation's acceptance and the live
    round times; parks a drafter that does not pay, and keeps asking whether it would pay again.

    Lookup has a controller of its own: its rounds feed neither the acceptance nor the timings of the learned drafter.
    """

    def __init__(self, costs: Costs, memory: Memory | None = None) -> None:
        self._learned, self._lookup = (memory or Memory()).controllers(costs)
        self._asked = False
        """Whether the learned drafter was asked in the round under way."""

    def limit(self, view: RowView) -> int:
        cap = self._of(view.source).choose(view.max_draft, view.depth, view.rows)
        self._asked = view.source is not Source.LOOKUP and cap > 0
        return cap

    def rests(self, view: RowView) -> bool:
        controller = self._of(view.source)
        return controller.parked and controller.choose(view.max_draft, view.depth, view.rows) == 0

    def learn(self, view: RowView, round: Round) -> None:
        asked, self._asked = self._asked, False
        source = round.source if round.drafted and round.source is not Source.TARGET else view.source
        whole = len(round.tokens) > round.accepted
        if round.drafted:
            self._of(source).observe(len(round.drafted), round.accepted, whole, round.ms, round.depth, round.rows)
        elif asked:
            self._learned.declined()
        elif round.index:
            self._learned.observe(0, 0, True, round.ms, round.depth, round.rows)
            self._lookup.observe(0, 0, True, round.ms, round.depth, round.rows)

    def _of(self, source: Source) -> Controller | CopyController:
        return self._lookup if source is Source.LOOKUP else self._learned


def policy_for(
    request_cap: int | None,
    engine_cap: EngineCap,
    costs: Costs | None,
    drafter: object = None,
    memory: Memory | None = None,
    *,
    fallback: int | None = None,
) -> CapPolicy:
    """The policy of one request: its own cap, bounded by the user's pin; the pin; auto; derived; a fallback.

    `drafter` is a drafter or a chain. One that says `full_block` drafts all of its block at one price, so that its
    fallback is all of it, unless `fallback` says what was best elsewhere.
    """
    pin = engine_cap if isinstance(engine_cap, int) else None
    if request_cap is not None:
        return Pinned(request_cap if pin is None else min(request_cap, pin))
    if pin is not None:
        return Pinned(pin)
    if engine_cap == "full":
        return Full()
    if costs is None:
        whole_block = any(getattr(part, "full_block", False) for part in getattr(drafter, "parts", (drafter,)))
        if fallback is not None:
            return Fallback(fallback)
        return Full() if whole_block else Fallback(FALLBACK)
    return Derived(costs, memory) if engine_cap == "derived" else Adaptive(costs, memory)

"""One request's whole life: its tokens, its draws, its drafters' contexts, its counts.

Held by the scheduler, changed by the loop; both live on the model thread. Only `cancel` and `use` may be called from
elsewhere. Knows no model.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.decoding.draft_length.policy import CapPolicy, RowView
from engine.decoding.drafter_watch import DrafterWatch
from engine.decoding.overlap import Starts
from engine.decoding.stopping import Finish
from engine.drafters.base import Context, Drafter
from engine.drafters.chain import Chain
from engine.errors import UnknownDrafter
from engine.sampling.sampler import RowSampler
from engine.types import Event, Media, Proposal, Request, Round, Source, Usage

Listener = Callable[[Event], None]
PolicyFactory = Callable[[int | None, Chain], CapPolicy]


@dataclass(frozen=True, slots=True)
class Switch:
    """A wish that takes effect at the next round."""

    chain: str | None
    cap: int | None


class Sequence:
    """A request under way.

    Between rounds: the target's state holds exactly tokens[:-1], every context of the current chain covers the same
    positions, and `pending` is tokens[-1].
    """

    def __init__(
        self,
        request: Request,
        *,
        sampler: RowSampler,
        finish: Finish,
        chain: Chain,
        chains: Mapping[str, Chain],
        policies: PolicyFactory,
        listener: Listener,
        watch: DrafterWatch | None = None,
    ) -> None:
        self.request = request
        self.sampler = sampler
        self.finish = finish
        self.chains = chains
        self.listener = listener
        self.tokens: list[int] = list(request.prompt)
        self.rounds = 0
        self.cancelled = False
        self.error: Exception | None = None
        """What it failed with."""
        self.distrusted: set[str] = set()
        """Parts that are not asked any more, since what they handed over was no law."""
        self.keeps_reply = True
        """Whether the next turn's prompt will contain this turn as it was generated."""
        self.usage = Usage(prompt=len(request.prompt))
        self.submitted = time.perf_counter()
        self.started = 0.0
        """When decoding began."""
        self._policies = policies
        self._watch = watch
        self._pictured: list[int] | None = None
        self._contexts: dict[str, Context] = {}
        self._starts = Starts()
        self._wish: Switch | None = None
        self._cap = request.cap
        self.chain = chain
        self.policy = policies(request.cap, chain)

    # From any thread --------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        self.cancelled = True

    def use(self, drafter: str | None, cap: int | None) -> None:
        """Switch the chain and the draft length from the next round on.

        Raises:
            UnknownDrafter: no chain of that name is loaded.
        """
        if drafter is not None and drafter not in self.chains:
            raise UnknownDrafter(f"No drafter '{drafter}' is loaded; there are: {', '.join(self.chains)}.")
        self._wish = Switch(drafter, cap)

    # On the model thread ----------------------------------------------------------------------------------------------

    @property
    def wants_switch(self) -> bool:
        return self._wish is not None

    def switch(self) -> bool:
        """Take up a wish. True when the chain changed."""
        wish, self._wish = self._wish, None
        if wish is None:
            return False
        before = self.chain
        self._cap = wish.cap
        self.chain = self.chains[wish.chain] if wish.chain is not None else self.chain
        self.policy = self._policies(self._cap, self.chain)
        return self.chain is not before

    @property
    def cached_as(self) -> list[int]:
        """The tokens as the prefix cache knows them: where a picture stands, numbers that its content decides."""
        if not self.request.media:
            return self.tokens
        if self._pictured is None:
            self._pictured = list(self.request.prompt)
            for media in self.request.media:
                self._pictured[media.start : media.start + media.rows] = numbers(media)
        return self._pictured + self.tokens[len(self._pictured) :]

    @property
    def pending(self) -> int:
        return self.tokens[-1]

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        return self.finish.remaining

    def context(self, part: Drafter[Any]) -> Context:
        """The part's memory of this sequence, made when first asked for."""
        if part.name not in self._contexts:
            self._contexts[part.name] = part.new_context()
        return self._contexts[part.name]

    def ask(self, part: Drafter[Any], k: int) -> Proposal:
        """Let a part draft."""
        proposal = part.propose(self.context(part), self.pending, k, self.sampler)
        self.hear(part, proposal)
        return proposal

    def hear(self, part: Drafter[Any], proposal: Proposal) -> None:
        """Note what a part that was asked came up with."""
        if self._watch is not None and part.taps:
            self._watch.heard(part.name, len(proposal))

    def distrust(self, part: Drafter[Any]) -> None:
        """Ask this part no more."""
        self.distrusted.add(part.name)
        if self._watch is not None:
            self._watch.faulty(part.name)

    def fail(self, error: Exception) -> None:
        """End here: there is no token to go on with."""
        self.error = error
        self.finish.abandon()

    def quiet(self, plain: bool, rows: int, idle: float) -> bool:
        """Whether nobody is expected to propose after a round that is under way, so that the next need not wait for it.
        `idle` is the share of a round that not waiting would save. Call once a round; rows: sequences in the batch."""
        parts = [part for part in self.chain.parts if part.name not in self.distrusted]
        mute = frozenset(part.name for part in parts if plain and part.silent(self.context(part), self.pending))
        self._starts.observe(mute)
        awake = [part.name for part in parts if not self.policy.rests(self.view(part, rows))]
        return plain and all(name in mute for name in awake) and (not awake or self._starts.rate < idle)

    @property
    def contexts(self) -> Mapping[str, Context]:
        return self._contexts

    def view(self, part: Drafter[Any], rows: int) -> RowView:
        return RowView(
            depth=len(self.tokens) - 1,
            remaining=self.remaining,
            max_draft=part.max_draft,
            drafter=part.name,
            source=part.source,
            rows=rows,
            rounds=self.rounds,
        )

    def count(self, round_: Round) -> None:
        """Add one round to the usage."""
        usage = self.usage
        self.usage = replace(
            usage,
            completion=usage.completion + len(round_.tokens),
            drafted=usage.drafted + len(round_.drafted),
            accepted=usage.accepted + round_.accepted,
            rounds=usage.rounds + 1,
            decode_ms=(time.perf_counter() - self.started) * 1e3 if self.started else 0.0,
        )

    def source_of(self, part: Drafter[Any] | None) -> Source:
        return Source.TARGET if part is None else part.source


def numbers(media: Media) -> list[int]:
    """One number a row of a picture: negative, as no token is, and other ones for other content. The mark before the
    picture counts, so that two numbers would have to agree by chance before a row of pixels is taken for another's."""
    noise = hashlib.shake_128(media.key.encode()).digest(4 * media.rows)
    return [-1 - (value & 0x7FFFFFFF) for value in struct.unpack(f"<{media.rows}I", noise)]

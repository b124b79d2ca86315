"""Who drafts how much for each row of a round: chains are asked part by part, and rows that stand at the same learned
drafter draft in one forward of it.

Knows no concrete drafter, and nothing of what becomes of a proposal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx

from engine.backend.host_values import ints
from engine.decoding.batch import Row, blamed
from engine.decoding.sequence import Sequence
from engine.decoding.verify import vetted
from engine.drafters.base import Drafter, DraftsTogether
from engine.types import Proposal

log = logging.getLogger("dspark.drafting")
EMPTY = mx.array([], dtype=mx.int32)
Part = Drafter[Any]


@dataclass(slots=True)
class _Walk:
    """How far one row has come along its chain."""

    sequence: Sequence
    parts: Iterator[Part]
    cap: int = 0
    """Longest draft that any part was allowed."""
    part: Part | None = None
    """Asked next, for `k` drafts."""
    k: int = 0
    row: Row | None = None

    def advance(self, rows: int) -> None:
        """On to the next part that may draft; a plain step where there is none."""
        for part in self.parts:
            if part.name in self.sequence.distrusted:
                continue
            limit = self.sequence.policy.limit(self.sequence.view(part, rows))
            # One token of the budget is the target's own.
            self.k = min(limit, part.max_draft, self.sequence.remaining - 1)
            self.cap = max(self.cap, self.k)
            if self.k >= 1:
                self.part = part
                return
        self.part, self.row = None, plain(self.sequence, self.cap)


@dataclass(slots=True)
class Drafting:
    """Proposals for the rows of a round."""

    evaluations: int = 0
    """Synchronisations that constraints have cost so far."""
    forwards: int = 0
    """Times that a drafter was asked, for one row or for several."""

    def rows(self, sequences: Seq[Sequence]) -> list[Row]:
        """One row a sequence, in order.

        Raises:
            RowFailed: a row's own drafter, policy or constraint failed.
        """
        walks = [_Walk(s, iter(s.chain.parts)) for s in sequences]
        for walk in walks:
            with blamed(walk.sequence):
                walk.advance(len(walks))
        while standing := [walk for walk in walks if walk.part is not None]:
            self._ask(standing, len(walks))
        return [walk.row for walk in walks if walk.row is not None]

    def _ask(self, walks: Seq[_Walk], rows: int) -> None:
        """Ask each one's part. Those before a learned drafter go first: only rows that they leave without a proposal
        reach it, and then all at once."""
        alone = [walk for walk in walks if not hasattr(walk.part, "propose_rows")]
        for walk in alone:
            with blamed(walk.sequence):
                self._take(walk, self._single(walk), rows)
        if alone:
            return
        part = walks[0].part
        group = [walk for walk in walks if walk.part is part]
        for walk, proposal in zip(group, self._together(cast("DraftsTogether[Any]", part), group), strict=True):
            with blamed(walk.sequence):
                self._take(walk, proposal, rows)

    def _single(self, walk: _Walk) -> Proposal:
        assert walk.part is not None
        self.forwards += 1
        return walk.sequence.ask(walk.part, walk.k)

    def _together(self, part: DraftsTogether[Any], group: Seq[_Walk]) -> list[Proposal]:
        if len(group) > 1:
            sequences = [walk.sequence for walk in group]
            try:
                self.forwards += 1
                proposals = part.propose_rows(
                    [s.context(part) for s in sequences],
                    [s.pending for s in sequences],
                    [walk.k for walk in group],
                    [s.sampler for s in sequences],
                )
                for sequence, proposal in zip(sequences, proposals, strict=True):
                    sequence.hear(part, proposal)
                return proposals
            except Exception:  # noqa: BLE001  asked one by one, only the row at fault will fail
                log.warning("%s could not draft for %d rows together; each is asked alone", part.name, len(group))
        made: list[Proposal] = []
        for walk in group:
            with blamed(walk.sequence):
                made.append(self._single(walk))
        return made

    def _take(self, walk: _Walk, proposal: Proposal, rows: int) -> None:
        if len(proposal):
            proposal = vetted(proposal, walk.k, walk.sequence.sampler.vocab)
        if len(proposal) and walk.sequence.sampler.needs_draft:
            proposal = self._trim(walk.sequence, proposal)
        if len(proposal):
            walk.row, walk.part = Row(walk.sequence, proposal, walk.part, walk.k), None
        else:
            walk.advance(rows)

    def _trim(self, sequence: Sequence, proposal: Proposal) -> Proposal:
        """Drop drafts that a constraint rules out anyway. Reads the draft: the price of a constraint."""
        self.evaluations += 1
        mx.eval(proposal.tokens)
        drafts = ints(proposal.tokens)
        keep = min(p.trim(drafts) for p in sequence.sampler.processors if p.needs_draft)
        if keep == len(drafts):
            return proposal
        return vetted(proposal, keep, sequence.sampler.vocab)


def plain(sequence: Sequence, cap: int = 0) -> Row:
    """A row that proposes nothing."""
    return Row(sequence, Proposal(EMPTY), None, cap)

"""DSpark: a block of parallel rows, tied together by a bigram bias along the realised drafts.

Deterministic in graph when greedy; when sampling, q is the law that each draft was drawn from, given the drafts before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx

from engine.drafters.block import CONTEXT_ROWS, BlockDrafter
from engine.drafters.borrow import Lender
from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.nn.heads import ConfidenceHead, MarkovHead, cut_by_threshold, cut_by_value
from engine.drafters.nn.kv_cache import BlockContext
from engine.drafters.nn.tensors import Matrix, Tensors
from engine.sampling.sampler import Draws, RowSampler, interleave
from engine.types import DenseQ, Proposal, SparseQ


class DSpark(BlockDrafter):
    """See the module. Without a Markov head it is DeepSpec's "DFlash": the same rows, independent of each other."""

    def __init__(
        self,
        config: DrafterConfig,
        tensors: Tensors,
        lender: Lender,
        *,
        name: str = "dspark",
        context_rows: int | None = CONTEXT_ROWS,
        threshold: float = 0.0,
    ) -> None:
        super().__init__(config, tensors, lender, name=name, context_rows=context_rows)
        self.markov = MarkovHead(config, tensors) if config.markov_rank else None
        self.confidence = ConfidenceHead(config, tensors) if "confidence_head.proj.weight" in tensors else None
        self.threshold = threshold
        """Confidence below which drafting stops; 0: never look, which saves a synchronisation a round."""
        self.costs: Callable[[int], float] | None = None
        """Expected milliseconds of a round that verifies k drafts. With it, truncation maximises expected speed; None
        where the cost hardly depends on k, so that looking would cost more than it saves."""

    def matrices(self) -> list[Matrix]:
        return [*super().matrices(), *([self.markov.w2] if self.markov else [])]

    def propose_rows(
        self,
        contexts: Sequence[BlockContext],
        pendings: Sequence[int],
        ks: Sequence[int],
        samplers: Sequence[RowSampler],
    ) -> list[Proposal]:
        k = min(max(ks), self.max_draft)
        hidden = self.predicting(contexts, pendings, k)
        base = self.base_logits(self.raw_head(hidden))
        draws = Draws(samplers, [context.length + 1 for context in contexts], k)
        embeds = self._walk(hidden, base, pendings, draws)
        confidence = None if self.confidence is None else self.confidence(hidden, embeds)
        keeps = self._keeps(confidence, [min(wanted, k) for wanted in ks], k)
        proposals: list[Proposal] = []
        for row, keep in enumerate(keeps):
            at = slice(row * k, row * k + keep)
            tokens, law = draws.of(row, keep)
            sound = draws.sound(row, keep)
            if confidence is not None and self._looks:
                doubted = mx.isfinite(confidence[at])
                sound = doubted if sound is None else sound & doubted
            proposals.append(
                Proposal(
                    tokens=tokens,
                    source=self.source,
                    q=None if law is None else self._q(law),
                    confidence=None if confidence is None else confidence[at],
                    drafter=self.name,
                    sound=sound,
                )
            )
        return proposals

    def _walk(self, hidden: mx.array, base: mx.array, pendings: Sequence[int], draws: Draws) -> mx.array | None:
        """Draft row by row of all blocks at once; the previous token's Markov row [B * k, r] of each draft."""
        if self.markov is None and self._draft_ids is None:
            draws.all(base)
            return None
        previous = mx.array(list(pendings), dtype=mx.int32)
        state = self.markov.begin(len(pendings)) if self.markov else None
        embeds: list[mx.array] = []
        for i in range(draws.k):
            logits = base[i :: draws.k]
            if self.markov is not None and state is not None:
                e = self.markov.embed(previous)
                bias, state = self.markov.step(e, hidden[i :: draws.k], state)
                logits = logits + bias.astype(mx.float32)[:, : logits.shape[1]]
                embeds.append(e)
            previous = draws.next(logits, self._draft_ids)
        return interleave(embeds) if embeds else None

    def _q(self, probs: mx.array) -> DenseQ | SparseQ:
        if self._draft_ids is None:
            return DenseQ(probs)
        return SparseQ(mx.broadcast_to(self._draft_ids[None], probs.shape), probs)

    @property
    def _looks(self) -> bool:
        """Whether the estimates decide the length."""
        return self.threshold > 0.0 or self.costs is not None

    def _keeps(self, confidence: mx.array | None, ks: Sequence[int], k: int) -> list[int]:
        """Drafts to verify. Looking at the estimates costs a synchronisation, so it happens only on request; one that
        is no number says nothing, and the length is the one that was asked for."""
        if confidence is None or not self._looks:
            return list(ks)
        values = cast(list[float], confidence.tolist())
        mine = [values[row * k : row * k + wanted] for row, wanted in enumerate(ks)]
        return [len(each) if any(map(math.isnan, each)) else self._cut(each) for each in mine]

    def _cut(self, confidence: Sequence[float]) -> int:
        if self.costs is not None:
            return cut_by_value(confidence, self.costs)
        return cut_by_threshold(confidence, self.threshold)

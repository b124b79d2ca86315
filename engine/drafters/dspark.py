"""DSpark: a block of parallel rows, tied together by a bigram bias along the realised drafts.

Deterministic in graph when greedy; when sampling, q is the law that each draft was drawn from, given the drafts before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx

from engine.core import DenseQ, Proposal, SparseQ
from engine.drafters.block import CONTEXT_ROWS, BlockDrafter
from engine.drafters.borrow import Lender
from engine.drafters.config import DrafterConfig
from engine.drafters.context import BlockContext
from engine.drafters.markov import ConfidenceHead, MarkovHead, cut_by_threshold, cut_by_value
from engine.drafters.tensors import Matrix, Tensors
from engine.sampling import RowSampler


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

    def propose(self, context: BlockContext, pending: int, k: int, sampler: RowSampler) -> Proposal:
        k = min(k, self.max_draft)
        hidden = self.predicting(context, pending, k)
        base = self.base_logits(self.raw_head(hidden))
        tokens, laws, embeds = self._walk(hidden, base, pending, context.length + 1, sampler)
        confidence = None if self.confidence is None else self.confidence(hidden, embeds)
        keep = self._keep(confidence, k)
        return Proposal(
            tokens=tokens[:keep],
            source=self.source,
            q=self._q(laws[:keep]) if keep else None,
            confidence=None if confidence is None else confidence[:keep],
            drafter=self.name,
        )

    def _walk(
        self, hidden: mx.array, base: mx.array, pending: int, position: int, sampler: RowSampler
    ) -> tuple[mx.array, list[mx.array], mx.array | None]:
        """Draft row by row: tokens [k], the law of each draw, and the previous token's Markov row of each draft."""
        k = base.shape[0]
        if self.markov is None and self._draft_ids is None:
            tokens, q = sampler.draw_rows(base, position)
            return tokens, [] if q is None else list(q), None
        previous = mx.array(pending, dtype=mx.int32)
        state = self.markov.begin() if self.markov else None
        tokens_: list[mx.array] = []
        laws: list[mx.array] = []
        embeds: list[mx.array] = []
        for i in range(k):
            logits = base[i]
            if self.markov is not None and state is not None:
                e = self.markov.embed(previous)
                bias, state = self.markov.step(e, hidden[i], state)
                logits = logits + bias.astype(mx.float32)[: logits.shape[0]]
                embeds.append(e)
            previous, law = sampler.draw(logits, position + i, self._draft_ids)
            tokens_.append(previous)
            if law is not None:
                laws.append(law)
        return mx.stack(tokens_), laws, mx.stack(embeds) if embeds else None

    def _q(self, laws: Sequence[mx.array]) -> DenseQ | SparseQ | None:
        if not laws:
            return None
        probs = mx.stack(list(laws))
        if self._draft_ids is None:
            return DenseQ(probs)
        return SparseQ(mx.broadcast_to(self._draft_ids[None], probs.shape), probs)

    def _keep(self, confidence: mx.array | None, k: int) -> int:
        """Drafts to verify. Looking at the estimates costs a synchronisation, so it happens only on request."""
        if confidence is None or (self.threshold <= 0.0 and self.costs is None):
            return k
        values = cast(list[float], confidence.tolist())
        if self.costs is not None:
            return cut_by_value(values, self.costs)
        return cut_by_threshold(values, self.threshold)

"""DFlash: all rows of a block predict their own position at once. DFlash 2 walks over the best candidates of each row.

DFlash's q is independent per row; DFlash 2's is the selector's law over its candidates, given the draft before.
"""

from __future__ import annotations

from typing import ClassVar

import mlx.core as mx

from engine.core import DenseQ, Proposal, SparseQ
from engine.drafters.block import CONTEXT_ROWS, BlockDrafter
from engine.drafters.borrow import Lender
from engine.drafters.config import DrafterConfig, Selector
from engine.drafters.context import BlockContext
from engine.drafters.tensors import Tensors
from engine.sampling import RowSampler


class CandidateSelector:
    """Scores of a row's candidates: their own logit plus a bilinear term with the draft before, gated by the row."""

    def __init__(self, selector: Selector, tensors: Tensors) -> None:
        prefix = "candidate_selector"
        self.top_k = selector.top_k
        self._projection = tensors.matrix(f"{prefix}.hidden_projection")
        self._before = tensors.take(f"{prefix}.predecessor_codebook")
        self._after = tensors.take(f"{prefix}.successor_codebook")

    def gates(self, hidden: mx.array) -> mx.array:
        """[k, H] -> [k, r]."""
        return self._projection(hidden)

    def candidates(self, raw: mx.array) -> mx.array:
        """Ids [k, K] of the best columns of raw logits [k, V]."""
        count = min(self.top_k, raw.shape[-1])
        return mx.argpartition(-raw, kth=count - 1, axis=-1)[:, :count].astype(mx.int32)

    def pulls(self, ids: mx.array, hidden: mx.array) -> mx.array:
        """What multiplies the previous token's row: [k, K, r] float32 for candidate ids [k, K] and rows [k, H]."""
        return (self._after[ids] * self.gates(hidden)[:, None, :]).astype(mx.float32)

    def scores(self, unary: mx.array, pull: mx.array, previous: mx.array) -> mx.array:
        """[K] float32 for one row: unary [K], pull [K, r], previous token."""
        return unary + pull @ self._before[previous].astype(mx.float32)


class DFlash(BlockDrafter):
    """See the module."""

    full_block: ClassVar[bool] = True

    def __init__(
        self,
        config: DrafterConfig,
        tensors: Tensors,
        lender: Lender,
        *,
        name: str = "dflash",
        context_rows: int | None = CONTEXT_ROWS,
    ) -> None:
        super().__init__(config, tensors, lender, name=name, context_rows=context_rows)
        self.selector = CandidateSelector(config.selector, tensors) if config.selector else None

    def propose(self, context: BlockContext, pending: int, k: int, sampler: RowSampler) -> Proposal:
        k = min(k, self.max_draft)
        hidden = self.predicting(context, pending, k)
        raw = self.raw_head(hidden)
        position = context.length + 1
        if self.selector is not None:
            tokens, q = self._select(self.selector, hidden, raw, pending, position, sampler)
        elif self._draft_ids is not None:
            tokens, q = self._reduced(self.base_logits(raw), self._draft_ids, position, sampler)
        else:
            tokens, law = sampler.draw_rows(self.base_logits(raw), position)
            q = None if law is None else DenseQ(law)
        return Proposal(tokens=tokens, source=self.source, q=q, drafter=self.name)

    def _reduced(
        self, logits: mx.array, ids: mx.array, position: int, sampler: RowSampler
    ) -> tuple[mx.array, SparseQ | None]:
        drawn = [sampler.draw(logits[i], position + i, ids) for i in range(logits.shape[0])]
        laws = [law for _, law in drawn if law is not None]
        q = SparseQ(mx.broadcast_to(ids[None], logits.shape), mx.stack(laws)) if laws else None
        return mx.stack([token for token, _ in drawn]), q

    def _select(
        self,
        selector: CandidateSelector,
        hidden: mx.array,
        raw: mx.array,
        pending: int,
        position: int,
        sampler: RowSampler,
    ) -> tuple[mx.array, SparseQ | None]:
        usable = raw[:, : self.config.vocab_size]
        ids = selector.candidates(usable)
        unary = self.base_logits(mx.take_along_axis(usable, ids, axis=-1))
        target_ids = ids if self._draft_ids is None else self._draft_ids[ids]
        pulls = selector.pulls(target_ids, hidden)
        previous = mx.array(pending, dtype=mx.int32)
        tokens: list[mx.array] = []
        laws: list[mx.array] = []
        for i in range(raw.shape[0]):
            scores = selector.scores(unary[i], pulls[i], previous)
            previous, law = sampler.draw(scores, position + i, target_ids[i])
            tokens.append(previous)
            if law is not None:
                laws.append(law)
        return mx.stack(tokens), SparseQ(target_ids, mx.stack(laws)) if laws else None

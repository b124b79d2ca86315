"""DFlash: all rows of a block predict their own position at once. DFlash 2 walks over the best candidates of each row.

DFlash's q is independent per row; DFlash 2's is the selector's law over its candidates, given the draft before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import mlx.core as mx

from engine.drafters.block import CONTEXT_ROWS, BlockDrafter
from engine.drafters.borrow import Lender
from engine.drafters.checkpoint.config import DrafterConfig, Selector
from engine.drafters.nn.kv_cache import BlockContext
from engine.drafters.nn.tensors import Tensors
from engine.sampling.sampler import Draws, RowSampler
from engine.types import DenseQ, Proposal, SparseQ


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
        """[B, K] float32 for one row of each block: unary [B, K], pull [B, K, r], previous tokens [B]."""
        before = self._before[previous].astype(mx.float32)
        return unary + (pull @ before[:, :, None]).squeeze(-1)


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

    def propose_rows(
        self,
        contexts: Sequence[BlockContext],
        pendings: Sequence[int],
        ks: Sequence[int],
        samplers: Sequence[RowSampler],
    ) -> list[Proposal]:
        k = min(max(ks), self.max_draft)
        hidden = self.predicting(contexts, pendings, k)
        raw = self.raw_head(hidden)
        draws = Draws(samplers, [context.length + 1 for context in contexts], k)
        ids: mx.array | None = None
        """Target ids [B * k, K] of what was drawn from, where that is not the vocabulary."""
        if self.selector is not None:
            ids = self._select(self.selector, hidden, raw, pendings, draws)
        else:
            logits = self.base_logits(raw)
            if self._draft_ids is not None:
                ids = mx.broadcast_to(self._draft_ids[None], logits.shape)
                for i in range(k):
                    draws.next(logits[i::k], self._draft_ids)
            else:
                draws.all(logits)
        proposals: list[Proposal] = []
        for row, wanted in enumerate(ks):
            keep = min(wanted, k)
            tokens, law = draws.of(row, keep)
            q = None
            if law is not None:
                q = DenseQ(law) if ids is None else SparseQ(ids[row * k : row * k + keep], law)
            proposals.append(Proposal(tokens, self.source, q, None, self.name, draws.sound(row, keep)))
        return proposals

    def _select(
        self,
        selector: CandidateSelector,
        hidden: mx.array,
        raw: mx.array,
        pendings: Sequence[int],
        draws: Draws,
    ) -> mx.array:
        """Walk over the candidates of each row; their target ids."""
        usable = raw[:, : self.config.vocab_size]
        ids = selector.candidates(usable)
        unary = self.base_logits(mx.take_along_axis(usable, ids, axis=-1))
        target_ids = ids if self._draft_ids is None else self._draft_ids[ids]
        pulls = selector.pulls(target_ids, hidden)
        previous = mx.array(list(pendings), dtype=mx.int32)
        for i in range(draws.k):
            at = slice(i, None, draws.k)
            previous = draws.next(selector.scores(unary[at], pulls[at], previous), target_ids[at])
        return target_ids

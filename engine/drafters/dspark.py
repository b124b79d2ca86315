"""DSpark: a block of parallel rows, tied together by a bigram bias along the realised drafts.

Deterministic in graph when greedy; when sampling, q is the law that each draft was drawn from, given the drafts before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx

from engine.drafters.base import DrafterKind, Lender
from engine.drafters.block import CONTEXT_ROWS, BlockDrafter, Drawn
from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.nn.heads import ConfidenceHead, MarkovHead, cut_by_threshold, cut_by_value
from engine.drafters.nn.tensors import Matrix, Shapes, Tensors, block_tensors
from engine.sampling.sampler import Draws, interleave


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
    ) -> None:
        super().__init__(config, tensors, lender, name=name, context_rows=context_rows)
        self.markov = MarkovHead(config, tensors) if config.markov_rank else None
        self.confidence = ConfidenceHead(config, tensors) if "confidence_head.proj.weight" in tensors else None
        self.costs: Callable[[int], float] | None = None
        """Expected milliseconds of a round that verifies k drafts. With it, truncation maximises expected speed; None
        where the cost hardly depends on k, so that looking would cost more than it saves."""

    def matrices(self) -> list[Matrix]:
        return [*super().matrices(), *([self.markov.w2] if self.markov else [])]

    def draw(self, hidden: mx.array, raw: mx.array, pendings: Sequence[int], draws: Draws) -> Drawn:
        base = self.base_logits(raw)
        embeds = self._walk(hidden, base, pendings, draws)
        ids = None if self._draft_ids is None else mx.broadcast_to(self._draft_ids[None], base.shape)
        return Drawn(ids, None if self.confidence is None else self.confidence(hidden, embeds))

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

    @property
    def looks(self) -> bool:
        return self.threshold > 0.0 or self.costs is not None

    def keeps(self, confidence: mx.array | None, ks: Sequence[int], k: int) -> list[int]:
        """Looking at the estimates costs a synchronisation, so it happens only on request; one that is no number says
        nothing, and the length is the one that was asked for."""
        if confidence is None or not self.looks:
            return list(ks)
        values = cast(list[float], confidence.tolist())
        mine = [values[row * k : row * k + wanted] for row, wanted in enumerate(ks)]
        return [len(each) if any(map(math.isnan, each)) else self._cut(each) for each in mine]

    def _cut(self, confidence: Sequence[float]) -> int:
        if self.costs is not None:
            return cut_by_value(confidence, self.costs)
        return cut_by_threshold(confidence, self.threshold)


def _expected(config: DrafterConfig, has: Callable[[str], bool], features: int) -> Shapes:
    """The block's, a Markov head of its form, and a confidence head where the file has one."""
    h, rank = config.hidden_size, config.markov_rank
    shapes = block_tensors(config, has, features)
    if rank:
        shapes["markov_head.markov_w1.weight"] = (config.vocab_size, rank)
        shapes["markov_head.markov_w2.weight"] = (config.head_rows, rank)
    if rank and config.markov_kind == "gated":
        shapes |= {"markov_head.gate_proj.weight": (rank, h + rank), "markov_head.gate_proj.bias": (rank,)}
    if rank and config.markov_kind == "rnn":
        rows = 3 * rank
        shapes |= {"markov_head.joint_proj.weight": (rows, 2 * rank + h), "markov_head.joint_proj.bias": (rows,)}
    if has("confidence_head.proj.weight"):
        width = h + (rank if config.confidence_with_markov else 0)
        shapes |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    return shapes


KIND = DrafterKind("dspark", DSpark, _expected)

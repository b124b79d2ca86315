"""DFlash: all rows of a block predict their own position at once. DFlash 2 walks over the best candidates of each row.

DFlash's q is independent per row; DFlash 2's is the selector's law over its candidates, given the draft before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, cast

import mlx.core as mx

from engine.drafters.base import DrafterKind, Lender
from engine.drafters.block import CONTEXT_ROWS, BlockDrafter, Drawn
from engine.drafters.checkpoint.config import DrafterConfig, Selector
from engine.drafters.nn.tensors import Shapes, Tensors, block_tensors
from engine.sampling.sampler import Draws


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

    def draw(self, hidden: mx.array, raw: mx.array, pendings: Sequence[int], draws: Draws) -> Drawn:
        if self.selector is not None:
            return Drawn(self._select(self.selector, hidden, raw, pendings, draws))
        logits = self.base_logits(raw)
        if self._draft_ids is None:
            draws.all(logits)
            return Drawn()
        for i in range(draws.k):
            draws.next(logits[i :: draws.k], self._draft_ids)
        return Drawn(mx.broadcast_to(self._draft_ids[None], logits.shape))

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


def _build(config: DrafterConfig, tensors: Tensors, lender: Lender, *, name: str, context_rows: int | None) -> DFlash:
    own_table = "embed_tokens.weight" in tensors
    return DFlash(as_its_target(config, lender, own_table), tensors, lender, name=name, context_rows=context_rows)


def as_its_target(config: DrafterConfig, target: Lender, own_table: bool = False) -> DrafterConfig:
    """What a DFlash for a Gemma takes over with the matrices that it borrows, unless its file says otherwise.

    The rows of the table, times the root of their width: raw ones are accepted less, without an error. And Gemma-4's
    cap on the logits, which changes no greedy draft, but the law that a sampled one is drawn from. Other families scale
    before they cap, or norm their rows; their drafters were trained on the bare matrices.
    """
    raw = target.spec.raw
    family = str(raw.get("model_type"))
    if config.embed_scale is None and family.startswith("gemma") and not own_table:
        config = replace(config, embed_scale=math.sqrt(target.spec.hidden_size))
    if config.softcap is not None or "gemma4" not in family:
        return config
    text = raw.get("text_config")
    places = [raw, *([cast(Mapping[str, object], text)] if isinstance(text, Mapping) else [])]
    caps = [cap for place in places if isinstance(cap := place.get("final_logit_softcapping"), int | float)]
    return replace(config, softcap=float(caps[0])) if caps else config


def _expected(config: DrafterConfig, has: Callable[[str], bool], features: int) -> Shapes:
    """The block's; DFlash 2 has a selector beside it, and convolutions in every layer."""
    shapes, selector = block_tensors(config, has, features), config.selector
    if selector is None:
        return shapes
    h, rank = config.hidden_size, selector.rank
    shapes["candidate_selector.hidden_projection.weight"] = (rank, h)
    shapes["candidate_selector.predecessor_codebook"] = (config.vocab_size, rank)
    shapes["candidate_selector.successor_codebook"] = (config.vocab_size, rank)
    taps, groups = selector.conv_kernel, h // selector.conv_group
    for index in range(len(config.layers)):
        for conv in (f"layers.{index}.attention_conv", f"layers.{index}.mlp_conv"):
            shapes[f"{conv}.base_kernel"] = (2, taps, h)
            shapes[f"{conv}.kernel_projection.weight"] = (2 * taps * groups, h)
    return shapes


KIND = DrafterKind("dflash", _build, _expected)

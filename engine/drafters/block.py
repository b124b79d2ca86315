"""What DSpark and DFlash share: fused features into a context, and one forward of a block on top of it.

Knows no acceptance and no loop; how tokens come out of the block's rows is the siblings' business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import mlx.core as mx

from engine.drafters.base import Lender
from engine.drafters.checkpoint.config import DrafterConfig, LogSnr
from engine.drafters.nn.attention import Blocks, ContextProjection, Rotary
from engine.drafters.nn.kv_cache import BlockContext, LayerRows
from engine.drafters.nn.layers import make_layer
from engine.drafters.nn.tensors import MASK_ROW, Matrix, Tensors
from engine.sampling.sampler import Draws, RowSampler
from engine.types import DenseQ, Proposal, Source, SparseQ

CONTEXT_ROWS = 4096
"""Context of full-attention layers. Trained on short sequences, these heads accept less when they see more."""


class Drawn(NamedTuple):
    """What is known of the drafts of all sequences beside the drafts themselves."""

    ids: mx.array | None = None
    """Target ids [B * k, K] of what each was drawn from, where that is not the vocabulary."""
    confidence: mx.array | None = None
    """[B * k] float32: estimated chance that each is accepted."""


class BlockDrafter:
    """A loaded block drafter; immutable but for the settings named here."""

    source = Source.DRAFT
    full_block: ClassVar[bool] = False
    """Whether the whole block costs about as much as a part of it."""

    def __init__(
        self,
        config: DrafterConfig,
        tensors: Tensors,
        lender: Lender,
        *,
        name: str,
        context_rows: int | None = CONTEXT_ROWS,
    ) -> None:
        self.config, self.name = config, name
        self.fingerprint = tensors.fingerprint(repr(config))
        self.taps = config.taps
        self.max_draft = config.max_draft
        self.context_rows = context_rows
        self.threshold = 0.0
        offset = 1.0 if config.offset_norms else 0.0
        self._lender = lender
        self._vocab = lender.spec.vocab_size
        self._fc = tensors.matrix("fc")
        self._hidden_norm = tensors.take("hidden_norm.weight") + offset
        self._norm = tensors.take("norm.weight") + offset
        self._rotary = Rotary(config.rope)
        self._layers = [make_layer(config, i, tensors, self._rotary) for i in range(len(config.layers))]
        self._project = self._projection()
        self._embedding = tensors.maybe("embed_tokens.weight")
        self._mask_row = tensors.maybe(MASK_ROW)
        self._own_head = tensors.matrix("lm_head") if "lm_head.weight" in tensors else None
        d2t = tensors.maybe("d2t")
        self._draft_ids: mx.array | None = None
        """Target id of each draft id, for a reduced vocabulary."""
        if d2t is not None:
            self._draft_ids = (mx.arange(d2t.shape[0]) + d2t).astype(mx.int32)
        self._noise = _noise_rows(config.log_snr, config.block_size, tensors) if config.log_snr else None

    # Context ----------------------------------------------------------------------------------------------------------

    def new_context(self) -> BlockContext:
        keeps = [self.context_rows if r.window is None else r.window - 1 for r in self.config.layers]
        return BlockContext(keeps, self.config.block_size, self._context_rows, self.fingerprint)

    def context_bytes(self, length: int) -> int:
        row = 2 * self.config.num_kv_heads * self.config.head_dim * self._hidden_norm.itemsize
        return row * sum(store.capacity(length) for store in self.new_context().layers)

    def observe(self, context: BlockContext, taps: mx.array | None, start: int, ids: Sequence[int]) -> None:
        """Hand taps [n, m*H] to the context."""
        if start != context.length or taps is None:
            raise ValueError(f"the drafter's context covers {context.length} positions and cannot go on at {start}")
        context.take(taps)

    def _context_rows(self, taps: Sequence[mx.array], starts: Sequence[int]) -> list[LayerRows]:
        """Keys and values of fused features, for every layer of every sequence."""
        together = taps[0] if len(taps) == 1 else mx.concatenate(list(taps))
        return self._project(self.fuse(together), [rows.shape[0] for rows in taps], starts)

    def silent(self, context: BlockContext, pending: int) -> bool:
        return False

    def fuse(self, taps: mx.array) -> mx.array:
        """[n, m*H] -> [n, H]."""
        features = taps.astype(self._hidden_norm.dtype)
        return mx.fast.rms_norm(self._fc(features), self._hidden_norm, self.config.rms_norm_eps)

    # Block ------------------------------------------------------------------------------------------------------------

    def propose(self, context: BlockContext, pending: int, k: int, sampler: RowSampler) -> Proposal:
        return self.propose_rows([context], [pending], [k], [sampler])[0]

    def propose_rows(
        self,
        contexts: Sequence[BlockContext],
        pendings: Sequence[int],
        ks: Sequence[int],
        samplers: Sequence[RowSampler],
    ) -> list[Proposal]:
        """See the contract. One forward, as long as the longest needs; each is cut to what was asked."""
        k = min(max(ks), self.max_draft)
        hidden = self.predicting(contexts, pendings, k)
        draws = Draws(samplers, [context.length + 1 for context in contexts], k)
        drawn = self.draw(hidden, self.raw_head(hidden), pendings, draws)
        keeps = self.keeps(drawn.confidence, [min(wanted, k) for wanted in ks], k)
        return [self._proposal(draws, drawn, slice(row * k, row * k + keep), row) for row, keep in enumerate(keeps)]

    def draw(self, hidden: mx.array, raw: mx.array, pendings: Sequence[int], draws: Draws) -> Drawn:
        """Draw k drafts a sequence from its rows [B * k, H] and their bare logits [B * k, Vd]; builds graph only."""
        raise NotImplementedError

    def keeps(self, confidence: mx.array | None, ks: Sequence[int], k: int) -> list[int]:
        """How many of the k drafts of each sequence to verify, at most ks."""
        return list(ks)

    def _proposal(self, draws: Draws, drawn: Drawn, at: slice, row: int) -> Proposal:
        keep = at.stop - at.start
        tokens, law = draws.of(row, keep)
        q = None
        if law is not None:
            q = DenseQ(law) if drawn.ids is None else SparseQ(drawn.ids[at], law)
        confidence = None if drawn.confidence is None else drawn.confidence[at]
        sound = draws.sound(row, keep)
        if confidence is not None and self.looks:
            sound = mx.isfinite(confidence) if sound is None else sound & mx.isfinite(confidence)
        return Proposal(tokens, self.source, q, confidence, self.name, sound)

    @property
    def looks(self) -> bool:
        """Whether the estimates decide the length."""
        return False

    def embed(self, pendings: Sequence[int], width: int) -> mx.array:
        """Anchor and mask rows [B * width, H] of each block in turn."""
        mask = self.config.mask_token_id
        fill = [] if mask is None or self._mask_row is not None else [mask] * (width - 1)
        ids = mx.array([token for pending in pendings for token in (pending, *fill)], dtype=mx.int32)
        rows = self._lender.raw_embed(ids) if self._embedding is None else self._embedding[ids]
        rows = rows.astype(self._hidden_norm.dtype)
        if self._mask_row is not None:
            masks = mx.broadcast_to(self._mask_row, (width - 1, rows.shape[-1]))
            rows = mx.concatenate([part for i in range(len(pendings)) for part in (rows[i : i + 1], masks)])
        if self.config.embed_scale is not None:
            rows = rows * mx.array(self.config.embed_scale, dtype=rows.dtype)
        if self._noise is None:
            return rows
        noise = self._noise[:width]
        return rows + (noise if len(pendings) == 1 else mx.tile(noise, (len(pendings), 1)))

    def block(self, contexts: Sequence[BlockContext], pendings: Sequence[int], k: int) -> mx.array:
        """Hidden rows [B * width, H] after the final norm, one block a context. A causal block is cut to what k drafts
        need; a bidirectional one would draft differently, so it keeps its trained width."""
        width = self.config.logits_start + k if self.config.causal else self.config.block_size
        BlockContext.settle_all(contexts)
        blocks = Blocks(tuple(context.length for context in contexts), width)
        h = self.embed(pendings, width)
        for layer, stores in zip(
            self._layers, zip(*(context.layers for context in contexts), strict=True), strict=True
        ):
            h = layer(h, stores, blocks)
        return mx.fast.rms_norm(h, self._norm, self.config.rms_norm_eps)

    def predicting(self, contexts: Sequence[BlockContext], pendings: Sequence[int], k: int) -> mx.array:
        """The rows [B * k, H] that predict the next k tokens of each."""
        hidden, start, size = self.block(contexts, pendings, k), self.config.logits_start, len(contexts)
        width = hidden.shape[0] // size
        if width == k:
            return hidden
        if size == 1:
            return hidden[start : start + k]
        return hidden.reshape(size, width, -1)[:, start : start + k].reshape(size * k, -1)

    def raw_head(self, hidden: mx.array) -> mx.array:
        """[k, H] -> [k, Vd]: the bare output matrix, in draft ids; columns beyond the target's are cut off."""
        logits = self._lender.raw_logits(hidden[None])[0] if self._own_head is None else self._own_head(hidden)
        if self._draft_ids is None and logits.shape[-1] > self._vocab:
            logits = logits[:, : self._vocab]
        return logits

    def base_logits(self, raw: mx.array) -> mx.array:
        """Multiplier and softcap of the drafter's own config, in float32."""
        logits = raw.astype(mx.float32)
        if self.config.output_multiplier != 1.0:
            logits = logits * self.config.output_multiplier
        if self.config.softcap:
            logits = self.config.softcap * mx.tanh(logits / self.config.softcap)
        return logits

    # Housekeeping -----------------------------------------------------------------------------------------------------

    def matrices(self) -> list[Matrix]:
        """What may be stored in fewer bits; norms, small heads and codebooks stay as they are."""
        head = [self._own_head] if self._own_head is not None else []
        return [self._fc, *head, *(m for layer in self._layers for m in layer.matrices())]

    def quantize(self, bits: int) -> None:
        for matrix in self.matrices():
            matrix.quantize(bits)
        self._project = self._projection()

    def _projection(self) -> ContextProjection:
        return ContextProjection(self.config, [layer.attention for layer in self._layers], self._rotary)


def _noise_rows(snr: LogSnr, width: int, tensors: Tensors) -> mx.array:
    """Log-SNR conditioning [width, H]: a constant, since row 0 is clean and the others are all noise."""
    fc1, fc2 = tensors.matrix("log_snr_embed.fc1"), tensors.matrix("log_snr_embed.fc2")
    rows: list[list[float]] = []
    for s in [snr.high] + [snr.low] * (width - 1):
        t = 1000.0 * (s - snr.low) / (snr.high - snr.low)
        angles = [t * 10000.0 ** (-j / 64) for j in range(64)]
        rows.append([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
    x = fc1(mx.array(rows, dtype=fc1.weight.dtype))
    return fc2(x * mx.sigmoid(x))

"""The contract of a target: one loaded model that verifies.

A family is one file in this folder. It says where the model's body, head and embedding are, which layer states it
needs, and what its logits go through; it knows no drafter and no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import mlx.core as mx

from engine.kv_cache.base import State


class Body(NamedTuple):
    """Result of one forward."""

    hidden: mx.array
    """[B, T, H], after the final norm: input of `Target.logits`."""
    taps: mx.array | None
    """[B, T, m*H], the residual streams after the tapped layers, concatenated in ascending layer order; None when no
    taps were asked for."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Facts about a loaded target that others plan with."""

    model_type: str
    name: str
    """What the user called it."""
    path: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    """Columns of the logits."""
    stop_ids: frozenset[int]
    """Tokenizer eos, generation_config eos and the family's turn-end tokens together."""
    context: int
    """Longest sequence the model was made for."""
    weight_bytes: int
    kv_bytes_per_token: int
    """Growth of the state per token at full depth; fixed-size layer states count 0."""
    fingerprint: str = ""
    """Changes with everything that changes its state: weights, quantisation, overrides, KV bits."""
    experts: tuple[int, int] | None = None
    """(active, total) per MoE layer."""
    vision: bool = False
    quantization: str = ""
    """For people: '4-bit g64', 'bf16', 'float32'."""
    raw: dict[str, object] = field(default_factory=dict[str, object])
    """The checkpoint's config."""


class Target(Protocol):
    """One loaded model. All calls happen on the model thread and only build graph: no call evaluates."""

    spec: TargetSpec

    def new_state(self) -> State:
        """Empty state for one sequence."""
        ...

    def body(
        self,
        ids: mx.array,
        state: State,
        taps: Sequence[int] = (),
        embeddings: mx.array | None = None,
    ) -> Body:
        """Run ids [B, T] int32 on top of `state` (a transaction of width T must be open).

        taps: 0-based layer ids in ascending order, -1 for the embedding output; a tap is the residual stream after that
        layer, before the next norm. embeddings [B, T, H] replace the lookup of ids.
        """
        ...

    def logits(self, hidden: mx.array) -> mx.array:
        """[B, T, H] -> [B, T, V], with the family's whole output transform (multiplier, softcap)."""
        ...

    def raw_logits(self, hidden: mx.array) -> mx.array:
        """[..., H] -> [..., V], the bare output matrix: for drafters that borrow it."""
        ...

    def raw_embed(self, ids: mx.array) -> mx.array:
        """[...] -> [..., H], bare rows of the embedding table, unscaled and unnormed: for drafters that borrow it."""
        ...

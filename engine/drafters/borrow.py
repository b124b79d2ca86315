"""What a drafter may ask of the target that lends it embedding and output matrix. Knows no target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import mlx.core as mx


class LenderFacts(Protocol):
    """The part of a target's facts that a drafter is checked against."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def raw(self) -> Mapping[str, object]: ...


class Lender(Protocol):
    """Bare matrices: no scale, no norm, no multiplier, no softcap. The drafter applies its own."""

    @property
    def spec(self) -> LenderFacts: ...

    def raw_logits(self, hidden: mx.array) -> mx.array: ...

    def raw_embed(self, ids: mx.array) -> mx.array: ...

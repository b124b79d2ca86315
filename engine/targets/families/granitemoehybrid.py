"""Granite 4 hybrids: Mamba-2 and attention layers, with or without experts, and multipliers at both ends.

As in Nemotron-H, a Mamba-2 state after a rejection equals that of a forward of the kept rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.targets.base import TargetSpec
from engine.targets.families.hybrid import HybridTarget
from engine.targets.recurrent_tape import MAMBA2


class GraniteHybridTarget(HybridTarget):
    recurrence = MAMBA2

    def mixers(self) -> Sequence[nn.Module]:
        return [layer.mamba for layer in self.inner().layers if layer.layer_type == "mamba"]

    def run(self, ids: mx.array, caches: list[Any], embeddings: mx.array | None) -> mx.array:
        if embeddings is not None:
            raise ValueError("this family takes ids only")
        return self.inner()(ids, cache=caches)

    def embed(self, ids: mx.array) -> mx.array:
        return self.raw_embed(ids) * self.inner().embedding_multiplier

    def logits(self, hidden: mx.array) -> mx.array:
        return self.raw_logits(hidden) / self.model.logits_scaling


def adapt(model: nn.Module, spec: TargetSpec) -> GraniteHybridTarget:
    return GraniteHybridTarget(model, spec)

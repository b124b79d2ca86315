"""Nemotron-H: Mamba-2, attention, MLP and mixture-of-experts blocks in one stack.

Only Mamba-2 and attention blocks own a cache entry, so that the entry of a block is not at the block's index. Several
rows go through a matrix form of the recurrence and one row through another: after a rejection the state equals that of
a forward of the kept rows, which differs from one-token decoding by rounding (docs/families.md has the size).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.targets.base import TargetSpec
from engine.targets.families.hybrid import HybridTarget
from engine.targets.recurrent_tape import MAMBA2


class NemotronHTarget(HybridTarget):
    recurrence = MAMBA2

    def inner(self) -> Any:
        return self.model.backbone

    def embedding(self) -> Any:
        return self.inner().embeddings

    def run(self, ids: mx.array, caches: list[Any], embeddings: mx.array | None) -> mx.array:
        if embeddings is not None:
            raise ValueError("this family takes ids only")
        return self.inner()(ids, cache=caches)

    def mixers(self) -> Sequence[nn.Module]:
        return [layer.mixer for layer in self.inner().layers if layer.block_type == "M"]


def adapt(model: nn.Module, spec: TargetSpec) -> NemotronHTarget:
    return NemotronHTarget(model, spec)

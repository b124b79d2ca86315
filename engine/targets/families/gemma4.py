"""Gemma 4, text: sliding and full layers, later layers that read the keys of earlier ones, a soft cap on the logits.

Layers that share keys own no cache entry, so that the state is shorter than the stack. The table is scaled on its way
into the first layer; drafters that borrow it get the bare rows.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.errors import UsageError
from engine.targets.base import TargetSpec
from engine.targets.families.dense import MlxTarget


class Gemma4Target(MlxTarget):
    def text_model(self) -> Any:
        return getattr(self.model, "language_model", self.model)

    def quantize_state(self, bits: int) -> None:
        if self.text_model().args.num_kv_shared_layers:
            raise UsageError(
                f"{self.spec.name} has layers that read the keys of others, which works unquantised only: leave "
                "--kv-bits away."
            )
        super().quantize_state(bits)

    def embed(self, ids: mx.array) -> mx.array:
        return self.raw_embed(ids) * self.inner().embed_scale

    def logits(self, hidden: mx.array) -> mx.array:
        logits = self.raw_logits(hidden)
        cap: float | None = self.text_model().final_logit_softcapping
        return logits if cap is None else mx.tanh(logits / cap) * cap


def adapt(model: nn.Module, spec: TargetSpec) -> Gemma4Target:
    return Gemma4Target(model, spec)

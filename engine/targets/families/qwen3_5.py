"""Qwen3.5, its mixture-of-experts form, Qwen3-Next, and packs with the same layers such as Bonsai 27B.

Three gated-delta layers for each layer of gated full attention. The delta rule runs again on the kept rows after a
rejection, which gives the very bits of one-token decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.nn as nn

from engine.targets.base import TargetSpec
from engine.targets.families.hybrid import HybridTarget
from engine.targets.recurrent_tape import GATED_DELTA


class Qwen35Target(HybridTarget):
    recurrence = GATED_DELTA

    def text_model(self) -> Any:
        """Qwen3-Next is the text model itself; the others wrap one, with or without a vision tower."""
        return getattr(self.model, "language_model", self.model)

    def mixers(self) -> Sequence[nn.Module]:
        return [layer.linear_attn for layer in self.inner().layers if layer.is_linear]


def adapt(model: nn.Module, spec: TargetSpec) -> Qwen35Target:
    return Qwen35Target(model, spec)

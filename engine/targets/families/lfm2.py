"""LFM2 and its mixture-of-experts form: short convolutions between attention layers.

A convolution remembers its last inputs only, so that a rollback is a slice of what it was given, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.nn as nn

from engine.targets.base import TargetSpec
from engine.targets.families.hybrid import HybridTarget


class Lfm2Target(HybridTarget):
    conv = "conv"

    def mixers(self) -> Sequence[nn.Module]:
        return [layer.conv for layer in self.inner().layers if not layer.is_attention_layer]


def adapt(model: nn.Module, spec: TargetSpec) -> Lfm2Target:
    return Lfm2Target(model, spec)

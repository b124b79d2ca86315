"""What hybrids share: some layers append keys and values, others overwrite a state that must be computed again to undo.

A family in this group names its mixers, their convolution and their recurrence; `record` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.nn as nn

from engine.kv_cache.base import LayerState
from engine.kv_cache.recurrent import ConvState, RecurrentState
from engine.targets.base import TargetSpec
from engine.targets.families.dense import MlxTarget
from engine.targets.recurrent_tape import Recurrence, record_mixers


class HybridTarget(MlxTarget):
    """A target with recurrent or short-convolution layers."""

    conv: ClassVar[str] = "conv1d"
    """Attribute of a mixer that holds its convolution."""
    recurrence: ClassVar[Recurrence | None] = None
    """None where the convolution's memory is the whole state."""

    def __init__(self, model: nn.Module, spec: TargetSpec) -> None:
        super().__init__(model, spec)
        record_mixers(self.mixers(), self.conv, self.recurrence)

    def mixers(self) -> Sequence[nn.Module]:
        """The modules that get a recurrent cache entry."""
        raise NotImplementedError

    def layer_state(self, cache: Any) -> LayerState:
        if type(cache).__name__ != "ArraysCache":
            return super().layer_state(cache)
        slots = len(cache.cache)
        return RecurrentState(slots) if self.recurrence else ConvState(slots)

"""Families of targets. One file each, found by `model_type` in this table; what is not listed is tried as `dense`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.nn as nn

    from engine.targets.base import TargetSpec
    from engine.targets.families.dense import MlxTarget

FAMILIES: dict[str, str] = {
    "gemma4": "gemma4",
    "gemma4_text": "gemma4",
    "gemma4_unified": "gemma4",
    "granitemoehybrid": "granitemoehybrid",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2",
    "muse_glimmer": "muse_glimmer",
    "nemotron_h": "nemotron_h",
    "prism_hadamard_qwen35": "qwen3_5",
    "qwen3_5": "qwen3_5",
    "qwen3_5_moe": "qwen3_5",
    "qwen3_next": "qwen3_5",
}
"""model_type -> module of this folder that has `adapt(model, spec) -> MlxTarget`."""


def adapter(model_type: str) -> Callable[[nn.Module, TargetSpec], MlxTarget]:
    """The `adapt` function of a family."""
    module: Any = import_module(f"engine.targets.families.{FAMILIES.get(model_type, 'dense')}")
    return module.adapt

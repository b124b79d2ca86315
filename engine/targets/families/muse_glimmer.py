"""Muse Glimmer: sliding layers with rotary positions, global layers without any; multiplier and cap on the logits.

The text network is mlx-lm's. Rows of the table are normed without a scale on their way into the first layer; drafters
that borrow table and head get both bare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.targets.base import TargetSpec
from engine.targets.families.dense import MlxTarget
from engine.targets.families.muse_vision import MuseEye, has_eye


class MuseGlimmerTarget(MlxTarget):
    def __init__(self, model: nn.Module, spec: TargetSpec) -> None:
        super().__init__(model, spec)
        self._given = _Given()
        _accept_embeddings(self.embedding(), self._given)
        folder = Path(spec.path)
        if has_eye(folder, spec.raw):
            self.eye = MuseEye(folder, spec.raw, self.raw_embed)

    def head(self) -> Any:
        return None if self.model.tie_word_embeddings else self.model.lm_head

    def run(self, ids: mx.array, caches: list[Any], embeddings: mx.array | None) -> mx.array:
        self._given.rows = embeddings
        try:
            return self.inner()(ids, cache=caches)
        finally:
            self._given.rows = None

    def embed(self, ids: mx.array) -> mx.array:
        return mx.fast.rms_norm(self.raw_embed(ids), None, self.inner().embed_eps)

    def logits(self, hidden: mx.array) -> mx.array:
        args = self.model.args
        cap: float = args.final_logit_softcapping
        return mx.tanh(self.raw_logits(hidden) * args.output_multiplier / cap) * cap


class _Given:
    """Rows that stand in for the table's during one forward."""

    rows: mx.array | None = None


def _accept_embeddings(table: nn.Module, given: _Given) -> None:
    """mlx-lm's body takes ids only, so this one embedding instance returns what it was given instead of looking up."""
    base = type(table)

    def call(self: Any, ids: mx.array) -> mx.array:
        return base.__call__(self, ids) if given.rows is None else given.rows

    table.__class__ = type(f"Given{base.__name__}", (base,), {"__call__": call})


def adapt(model: nn.Module, spec: TargetSpec) -> MuseGlimmerTarget:
    return MuseGlimmerTarget(model, spec)

"""From a path to a drafter that fits a target, or a refusal with its reason.

Fetches nothing: names and repositories are resolved elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

from engine import backend
from engine.drafters import registry
from engine.drafters.base import LearnedDrafter, Lender
from engine.drafters.block import CONTEXT_ROWS
from engine.drafters.checkpoint import Checkpoint, read_checkpoint
from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.nn.tensors import Tensors, check
from engine.errors import DrafterRefused


def load_drafter(
    path: str | Path,
    target: Lender,
    *,
    name: str | None = None,
    context_rows: int | None = CONTEXT_ROWS,
    threshold: float = 0.0,
    bits: int | None = None,
    strict: bool = True,
) -> LearnedDrafter:
    """Load the drafter at `path` (folder, or GGUF) for `target`, which lends embedding and head if needed.

    bits: None quantises to 4 where the backend gains from it, 0 never does. context_rows bounds what full-attention
    layers see. strict=False ignores tensors that the config does not explain.

    Raises:
        DrafterRefused, WeightsMissing, WeightsDamaged: with the reason and a way out.
    """
    drafter = build(read_checkpoint(path), target, name=name, context_rows=context_rows, strict=strict)
    drafter.threshold = threshold
    width = default_bits() if bits is None else bits
    if width:
        drafter.quantize(width)
    return drafter


def build(
    checkpoint: Checkpoint,
    target: Lender,
    *,
    name: str | None = None,
    context_rows: int | None = CONTEXT_ROWS,
    strict: bool = True,
    dtype: mx.Dtype | None = None,
) -> LearnedDrafter:
    """Match a checkpoint with a target. dtype: compute in this number format; None: what suits the backend.

    Raises:
        DrafterRefused: it was made for another target, or its tensors are not those of its config.
    """
    config = checkpoint.config
    fit(config, target)
    tensors = Tensors(checkpoint.tensors, dtype or (mx.float32 if backend.float32_only() else None))
    kind = registry.kind(config.kind)
    check(config, tensors, kind.expected_tensors(config, tensors.__contains__, target.spec.hidden_size), strict)
    d2t = tensors.maybe("d2t")
    if d2t is not None:
        _check_ids(d2t, target.spec.vocab_size)
    return kind.build(config, tensors, target, name=name or kind.name, context_rows=context_rows)


def default_bits() -> int:
    """Bits for matrices at load. On Metal a round is bound by weight traffic, and acceptance does not suffer;
    on CPU float32 products are the fast ones."""
    return 4 if mx.metal.is_available() and not backend.is_cpu() else 0


def fit(config: DrafterConfig, target: Lender) -> None:
    """Raises DrafterRefused when the numbers of config and target contradict each other."""
    spec = target.spec
    if config.num_target_layers is not None and config.num_target_layers != spec.num_layers:
        raise DrafterRefused(
            f"This drafter fits a target of {config.num_target_layers} layers, but the model has {spec.num_layers}; "
            "choose the drafter of this model."
        )
    if config.taps[-1] >= spec.num_layers:
        raise DrafterRefused(
            f"This drafter reads layer {config.taps[-1]}, but the model's last one is {spec.num_layers - 1}; "
            "choose the drafter of this model."
        )
    if config.vocab_size < spec.vocab_size and config.draft_vocab_size is None:
        raise DrafterRefused(
            f"This drafter knows {config.vocab_size} words, but the model {spec.vocab_size}; "
            "choose the drafter of this model."
        )
    if config.mask_token_id is not None and not 0 <= config.mask_token_id < config.vocab_size:
        raise DrafterRefused(
            f"The drafter's mask token {config.mask_token_id} is not in its vocabulary; choose another one."
        )
    if config.max_draft < 1:
        raise DrafterRefused(f"A block of {config.block_size} rows leaves nothing to draft; choose another drafter.")


def _check_ids(d2t: mx.array, vocab: int) -> None:
    ids = np.arange(d2t.shape[0]) + np.array(d2t)
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab:
        raise DrafterRefused(
            f"The drafter's d2t table points to ids {low} to {high}, outside the model's {vocab} words; "
            "it was made for another model."
        )

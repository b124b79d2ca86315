"""Does it fit? Weights, state and scratch of a model, from its config and file sizes alone, before a byte is loaded.

The state's cost is not a formula per family: the model is built without weights, one token goes through it as a graph
that is never evaluated, and the shapes of the layer states are read off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from engine import backend
from engine.errors import MemoryShort, human_bytes
from engine.kv_cache.base import State
from engine.kv_cache.full import AppendKV
from engine.targets.base import Target
from engine.targets.facts import describe_config, skeleton
from engine.targets.families import adapter

USABLE = 0.9
"""Part of the memory that weights and state may fill."""
ROUND = 1024
"""A shortened window is a multiple of this many tokens."""
SCRATCH_ROWS = 6
"""Activations of a prompt chunk that live at once, in rows of the widest layer."""


@dataclass(frozen=True, slots=True)
class StateCost:
    """Bytes of one sequence's state."""

    per_token: int
    """Grows for ever: full attention."""
    fixed: int
    """Windows when full, recurrent and convolution states."""

    def bytes(self, tokens: int) -> int:
        return self.fixed + self.per_token * tokens


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model will take."""

    weights: int
    state: StateCost
    scratch: int
    """While a prompt is read."""
    context: int
    """Longest sequence that the model was made for."""
    drafter: int = 0

    @property
    def minimum(self) -> int:
        """Without a single token of context."""
        return self.weights + self.drafter + self.state.fixed + self.scratch

    def bytes(self, tokens: int) -> int:
        return self.minimum + self.state.per_token * tokens


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for this machine."""

    estimate: Estimate
    available: int
    context: int
    """Tokens that fit, at most the model's own window."""
    note: str = ""
    """One sentence when the window had to be shortened."""


def state_cost(target: Target) -> StateCost:
    """Bytes of one sequence's state of a target, loaded or not; evaluates nothing."""
    state = target.new_state()
    with state.begin(1, record=False):
        target.body(mx.zeros((1, 1), dtype=mx.int32), state)
        return _cost(state)


def _cost(state: State) -> StateCost:
    per_token = fixed = 0
    for layer in state.layers:
        arrays = layer.arrays()
        if isinstance(layer, AppendKV):
            per_token += sum(a.nbytes // a.shape[2] for a in arrays)
        else:
            fixed += sum(a.nbytes for a in arrays)
    return StateCost(per_token, fixed)


def estimate(folder: Path | int, config: Mapping[str, Any], *, kv_bits: int = 0, chunk: int = 2048) -> Estimate:
    """What the checkpoint in `folder`, or of so many bytes of weights, will take with this config (overrides already in
    it).

    Raises:
        LoadError: when no family takes it.
    """
    model = skeleton(config)
    itemsize = 4 if backend.float32_only() else 2
    if itemsize == 2:
        model.set_dtype(mx.bfloat16)
    spec = describe_config(config)
    target = adapter(spec.model_type)(model, spec)
    if kv_bits:
        target.quantize_state(kv_bits)
    text: Mapping[str, Any] = {**config, **(config.get("text_config") or {})}
    widest = max(int(text.get(k) or 0) for k in ("hidden_size", "intermediate_size", "moe_intermediate_size"))
    return Estimate(
        weights=_weights(model, folder if isinstance(folder, int) else stored_bytes(folder), config),
        state=state_cost(target),
        scratch=chunk * SCRATCH_ROWS * widest * itemsize,
        context=spec.context,
    )


def stored_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.glob("*.safetensors"))


def _weights(model: nn.Module, stored: int, config: Mapping[str, Any]) -> int:
    """Bytes once loaded: as stored, or dense float32 on the CPU where that fits half the memory."""
    arrays = cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))
    elements = sum(a.size for _, a in arrays)
    if not backend.float32_only():
        return stored or 2 * elements
    if not config.get("quantization") or 4 * elements < backend.memory_bytes() // 2:
        return 4 * elements
    return stored + stored // 8  # scales and biases widen to float32


def fit(need: Estimate, *, wanted: int | None = None, available: int | None = None) -> Fit:
    """Shorten the window to what the memory holds.

    wanted: tokens of context; None is the model's own window.

    Raises:
        MemoryShort: when not even the weights fit.
    """
    room = int(backend.memory_bytes() * USABLE) if available is None else available
    wanted = need.context if wanted is None else min(wanted, need.context)
    if not room:
        return Fit(need, 0, wanted)  # a system that does not say how much memory it has
    if need.minimum + need.state.per_token * min(wanted, ROUND) > room:
        more = backend.raise_memory()
        raise MemoryShort(
            f"This model needs {human_bytes(need.bytes(ROUND))} and this machine has {human_bytes(room)} for it: "
            f"choose a smaller or a more quantised one{f'; {more}' if more else ''}."
        )
    if need.bytes(wanted) <= room:
        return Fit(need, room, wanted)
    tokens = (room - need.minimum) // need.state.per_token // ROUND * ROUND
    note = (
        f"The window is {tokens:,} tokens instead of {wanted:,}, which would take {human_bytes(need.bytes(wanted))} of "
        f"{human_bytes(room)}: --kv-bits 8 makes room for more."
    )
    return Fit(need, room, tokens, note)

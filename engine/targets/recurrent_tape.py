"""Lets a recurrent layer of a library's model tell its state what a rollback will need.

A mixer keeps only the state after the last row, which is too little to undo a part of a round. So each mixer *instance*
becomes a subclass of its own class that runs the library's own method with one difference: the global name of the
recurrence means a function that first records the call. The instance of its convolution records what it is given. The
library's classes and modules stay as they are. Knows mlx-lm's recurrences by signature, and no family.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.errors import UnsupportedModel
from engine.kv_cache.recurrent import CallTrace, RecurrentState, WindowTrace

CONV, RECURRENCE = 0, 1
"""Slots of mlx-lm's caches: the convolution's memory first, then the recurrent state."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A function of the library that maps (rows, state) to (outputs, state)."""

    name: str
    timed: frozenset[str]
    """Parameters with one entry a row, [B, T, ...]."""
    state: str = "state"


GATED_DELTA = Recurrence("gated_delta_update", frozenset({"q", "k", "v", "a", "b", "mask"}))
MAMBA2 = Recurrence("ssm_update", frozenset({"hidden_states", "B", "C", "dt", "mask"}))


@dataclass(slots=True)
class _Tape:
    """Which state the mixer that runs now belongs to."""

    state: RecurrentState | None = None


def record_mixers(mixers: Sequence[nn.Module], conv: str, recurrence: Recurrence | None) -> None:
    """Make these mixers record. `conv` names their convolution; None where the convolution is all the memory.

    Raises:
        UnsupportedModel: when the library's recurrence is not what this module knows, naming what moved.
    """
    tape = _Tape()
    classes: dict[type[nn.Module], type[nn.Module]] = {}
    for mixer in mixers:
        base = type(mixer)
        if base not in classes:
            classes[base] = _mixer_class(base, recurrence, tape)
        module = getattr(mixer, conv)
        mixer.__class__ = classes[base]
        if type(module) not in classes:
            classes[type(module)] = _conv_class(type(module), tape)
        module.__class__ = classes[type(module)]


def _mixer_class(base: type[nn.Module], recurrence: Recurrence | None, tape: _Tape) -> type[nn.Module]:
    methods = _rebound(base, recurrence, tape) if recurrence else {}
    inner: Callable[..., Any] = methods.get("__call__", base.__call__)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = next((a for a in (*args, *kwargs.values()) if isinstance(a, RecurrentState)), None)
        if state is None:
            return inner(self, *args, **kwargs)
        tape.state = state
        try:
            return inner(
                self,
                *(state.port if a is state else a for a in args),
                **{k: state.port if a is state else a for k, a in kwargs.items()},
            )
        finally:
            tape.state = None

    return type(f"Recorded{base.__name__}", (base,), {**methods, "__call__": call})


def _rebound(base: type[nn.Module], recurrence: Recurrence, tape: _Tape) -> dict[str, Callable[..., Any]]:
    """The methods of `base` that call the recurrence, with its name meaning the recording one."""
    users = {
        name: method
        for name, method in inspect.getmembers(base, inspect.isfunction)
        if recurrence.name in method.__code__.co_names and recurrence.name in method.__globals__
    }
    if not users:
        raise UnsupportedModel(
            f"{base.__module__}.{base.__name__} no longer calls {recurrence.name}, so a rejected draft could not be "
            "undone: use the mlx-lm version that this release was tested with."
        )
    return {name: _with_global(method, recurrence, tape) for name, method in users.items()}


def _with_global(method: FunctionType, recurrence: Recurrence, tape: _Tape) -> FunctionType:
    function = method.__globals__[recurrence.name]
    known = {**method.__globals__, recurrence.name: _recording(function, recurrence, tape)}
    out = FunctionType(method.__code__, known, method.__name__, method.__defaults__, method.__closure__)
    out.__kwdefaults__ = method.__kwdefaults__
    return out


def _recording(function: Callable[..., Any], recurrence: Recurrence, tape: _Tape) -> Callable[..., Any]:
    signature = inspect.signature(function)
    missing = (recurrence.timed | {recurrence.state}) - signature.parameters.keys()
    if missing:
        raise UnsupportedModel(
            f"mlx-lm's {recurrence.name}{signature} lacks {', '.join(sorted(missing))}, so a rejected draft could not "
            "be undone: use the mlx-lm version that this release was tested with."
        )

    def record(*args: Any, **kwargs: Any) -> Any:
        if tape.state is not None and tape.state.recording:
            arguments = signature.bind(*args, **kwargs).arguments
            tape.state.record(RECURRENCE, CallTrace(function, arguments, recurrence.timed, recurrence.state))
        return function(*args, **kwargs)

    return record


def _conv_class(base: type[nn.Module], tape: _Tape) -> type[nn.Module]:
    def call(self: Any, given: mx.array) -> mx.array:
        if tape.state is not None:
            tape.state.record(CONV, WindowTrace(given, self.weight.shape[1] - 1))
        return base.__call__(self, given)

    return type(f"Recorded{base.__name__}", (base,), {"__call__": call})

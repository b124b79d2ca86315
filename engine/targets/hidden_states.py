"""Residual streams of chosen layers, recorded while a library's own model runs.

Each tapped layer *instance* gets a subclass of its own class that records what the layer returns; the library's classes
and modules stay as they are, the parameter tree is unchanged, and `close` undoes it. Knows no family.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn


class Sink:
    """Where tapped layers put what they return during one forward."""

    def __init__(self) -> None:
        self.out: dict[int, mx.array] = {}


def _tapped(base: type[nn.Module]) -> type[nn.Module]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = base.__call__(self, *args, **kwargs)
        sink, index = self.__dict__["_dspark_tap"]
        sink.out[index] = result[0] if isinstance(result, tuple) else result
        return result

    return type(f"Tapped{base.__name__}", (base,), {"__call__": call})


class LayerTaps:
    """Taps on a list of layers, added as they are first asked for."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        self._sink = Sink()
        self._classes: dict[int, type[nn.Module]] = {}

    def arm(self, taps: Sequence[int]) -> None:
        """Prepare for one forward that must record these layers (ids >= 0)."""
        self._sink.out.clear()
        for index in taps:
            if index < 0 or index in self._classes:
                continue
            if index >= len(self._layers):
                raise ValueError(f"layer {index} cannot be tapped: the model has {len(self._layers)} layers")
            layer = self._layers[index]
            self._classes[index] = type(layer)
            object.__setattr__(layer, "_dspark_tap", (self._sink, index))
            layer.__class__ = _tapped(type(layer))

    def collect(self, taps: Sequence[int], embedding: mx.array | None) -> mx.array:
        """[B, T, m*H] of the forward that just ran, in the order asked; -1 is `embedding`."""
        parts: list[mx.array] = []
        for index in taps:
            if index >= 0:
                parts.append(self._sink.out[index])
            elif embedding is not None:
                parts.append(embedding)
            else:
                raise ValueError("this family has no embedding tap")
        self._sink.out.clear()
        return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=-1)

    def close(self) -> None:
        """Give every layer its own class back."""
        for index, cls in self._classes.items():
            layer = self._layers[index]
            layer.__class__ = cls
            object.__delattr__(layer, "_dspark_tap")
        self._classes.clear()

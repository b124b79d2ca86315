"""The host's view of evaluated arrays, typed. Reading a whole array is free; a slice of one is a new evaluation."""

from __future__ import annotations

import mlx.core as mx


def table(array: mx.array) -> list[list[int]]:
    """The values of an evaluated int32 matrix, read at once: a slice of it would be a new evaluation."""
    return array.tolist()  # pyright: ignore[reportReturnType]


def ints(array: mx.array) -> list[int]:
    """The values of an evaluated int32 vector."""
    return array.tolist()  # pyright: ignore[reportReturnType]


def floats(array: mx.array) -> list[float]:
    """The values of an evaluated float32 vector."""
    return array.tolist()  # pyright: ignore[reportReturnType]


def float_table(array: mx.array) -> list[list[float]]:
    """The values of an evaluated float32 matrix."""
    return array.tolist()  # pyright: ignore[reportReturnType]

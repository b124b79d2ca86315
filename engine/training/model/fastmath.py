"""exp, softmax and SiLU that are cheap where MLX's own are not.

On x86 CPUs MLX evaluates exp one element at a time (about 20 ns each), which costs more than the matrix products
around it. There a polynomial raised by repeated squaring takes its place; every other backend gets MLX's own functions.
Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import mlx.core as mx

from engine import backend

_SQUARINGS = 5
_FLOOR = -24.0
"""exp(-24) is 4e-11: below what a float32 sum of thousands of terms can see."""


def _poly_exp(x: mx.array) -> mx.array:
    """exp(x) for |x| up to about 24, as (exp(x / 32)) ** 32 with a quartic inside: relative error below 1e-3 for
    |x| < 7, and absolute error below 1e-4 for every x <= 0."""
    y = x * (1.0 / 2**_SQUARINGS)
    y = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0))))
    for _ in range(_SQUARINGS):
        y = y * y
    return y


def _poly_exp_nonpositive(x: mx.array) -> mx.array:
    return _poly_exp(mx.maximum(x, _FLOOR))


def _poly_silu(x: mx.array) -> tuple[mx.array, mx.array]:
    """(SiLU, sigmoid)."""
    s = 1.0 / (1.0 + _poly_exp(-mx.clip(x, _FLOOR, -_FLOOR)))
    return x * s, s


@cache
def _polynomial() -> bool:
    return backend.is_cpu() and backend.BLAS.kind != "accelerate"


@cache
def _compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    return mx.compile(f)


def exp_nonpositive(x: mx.array) -> mx.array:
    """exp of values <= 0. Not differentiable: for code that writes its own gradient."""
    return _compiled(_poly_exp_nonpositive)(x) if _polynomial() else mx.exp(x)


@mx.custom_function  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_silu(x: mx.array) -> tuple[mx.array, mx.array]:
    # The sigmoid is an output, too, so that the gradient need not compute it again.
    return _compiled(_poly_silu)(x)


@_fast_silu.vjp  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_silu_vjp(x: mx.array, cotangents: tuple[mx.array, mx.array], outputs: tuple[mx.array, mx.array]) -> mx.array:
    s = outputs[1]
    return cotangents[0] * (s * (1.0 + x * (1.0 - s)))


def silu(x: mx.array) -> mx.array:
    return cast(tuple[mx.array, mx.array], _fast_silu(x))[0] if _polynomial() else x * mx.sigmoid(x)


@mx.custom_function  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_exp(x: mx.array) -> mx.array:
    return _compiled(_poly_exp_nonpositive)(x)


@_fast_exp.vjp  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_exp_vjp(x: mx.array, cotangent: mx.array, e: mx.array) -> mx.array:
    return cotangent * e


def exp(x: mx.array) -> mx.array:
    """exp of values <= 0, differentiable. Masked entries must be finite and very negative (-1e9), not -inf."""
    return cast(mx.array, _fast_exp(x)) if _polynomial() else mx.exp(x)

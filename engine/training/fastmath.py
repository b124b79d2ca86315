"""exp, softmax and SiLU that are cheap where MLX's own are not.

On x86 CPUs MLX evaluates exp one element at a time (about 20 ns each), which costs more than the matrix products
around it. There a polynomial raised by repeated squaring takes its place; every other backend gets MLX's own functions.
Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import mlx.core as mx

from engine import backend

_SQUARINGS = 5
_FLOOR = -24.0
"""exp(-24) is 4e-11: below what a float32 sum of thousands of terms can see."""


def _poly_exp(x: mx.array) -> mx.array:
    """exp(x) for x <= 0, as (exp(x / 32)) ** 32 with a cubic inside: relative error below 1e-3 for x > -5 and absolute
    error below 1e-4 everywhere."""
    y = mx.maximum(x, _FLOOR) * (1.0 / 2**_SQUARINGS)
    y = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0))))
    for _ in range(_SQUARINGS):
        y = y * y
    return y


def _poly_sigmoid(x: mx.array) -> mx.array:
    e = _poly_exp(-mx.abs(x))
    small = e / (1.0 + e)
    return mx.where(x < 0, small, 1.0 - small)


def _silu_grad(x: mx.array, g: mx.array) -> mx.array:
    s = _poly_sigmoid(x)
    return g * s * (1.0 + x * (1.0 - s))


@cache
def _polynomial() -> bool:
    return backend.is_cpu() and backend.BLAS.kind != "accelerate"


@cache
def _compiled(f: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return mx.compile(f)


def exp_nonpositive(x: mx.array) -> mx.array:
    """exp of values <= 0. Not differentiable: for code that writes its own gradient."""
    return _compiled(_poly_exp)(x) if _polynomial() else mx.exp(x)


def _poly_silu(x: mx.array) -> mx.array:
    return x * _poly_sigmoid(x)


@mx.custom_function  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_silu(x: mx.array) -> mx.array:
    return _compiled(_poly_silu)(x)


@_fast_silu.vjp  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_silu_vjp(x: mx.array, cotangent: mx.array, _: mx.array) -> mx.array:
    return _compiled(_silu_grad)(x, cotangent)


def silu(x: mx.array) -> mx.array:
    return cast(mx.array, _fast_silu(x)) if _polynomial() else x * mx.sigmoid(x)


@mx.custom_function  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_exp(x: mx.array) -> mx.array:
    return _compiled(_poly_exp)(x)


@_fast_exp.vjp  # pyright: ignore[reportUntypedFunctionDecorator]
def _fast_exp_vjp(x: mx.array, cotangent: mx.array, e: mx.array) -> mx.array:
    return cotangent * e


def exp(x: mx.array) -> mx.array:
    """exp of values <= 0, differentiable. Masked entries must be finite and very negative (-1e9), not -inf."""
    return cast(mx.array, _fast_exp(x)) if _polynomial() else mx.exp(x)

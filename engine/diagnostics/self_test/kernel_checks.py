"""Kernels against their plain forms: what the dispatcher may choose, and what MLX and mlx-lm choose by backend.

A plain form is the definition in double precision on the host, or the library's own without a kernel. Knows no model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import mlx.core as mx
import numpy as np

from engine import backend
from engine.backend import rope
from engine.backend.kernels import Alternative, Trial, device_kind
from engine.diagnostics.self_test.findings import Finding, Gauge, ulps
from engine.diagnostics.self_test.tiny_models import Precision

LIMITS = {mx.float32: 2e-3, mx.float16: 0.01, mx.bfloat16: 0.03}
"""Largest relative deviation (root mean square) of one operation; a GPU may round float32 products to 10 bits."""
TRIALS: tuple[Callable[[], Trial], ...] = tuple(
    partial(rope.trial, rows, offset) for rows, offset in ((4, 3), (1, 0), (9, 250), (16, 511), (5, 1999))
)
"""All that the dispatcher ever raced, and more of the same."""
KEYS, DIM, HEADS, KV_HEADS = 33, 64, 4, 2


def random(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def exact(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32)).astype(np.float64)


def plainly(x: np.ndarray) -> mx.array:
    return mx.array(x.astype(np.float32))


# The dispatcher's -----------------------------------------------------------------------------------------------------


def dispatched(device: str | None = None) -> Iterator[Finding]:
    """Every alternative on the kinds of device that it is for, by the tolerance that it declares."""
    device = device or device_kind()
    for trial in (make() for make in TRIALS):
        for other in trial.alternatives:
            name = f"{trial.operation} by {other.name}, {'x'.join(map(str, trial.shape))}"
            if device not in other.devices:
                yield Finding("kernels", name, "float32", tried=False, detail=f"it is not for {device}")
            else:
                yield _alternative(trial, other).finding("kernels", name, "float32")


def _alternative(trial: Trial, other: Alternative) -> Gauge:
    """Units in the last place where equality is promised, else relative to the largest value."""
    gauge, operands = Gauge(other.tolerance), trial.inputs()
    expected, got = trial.reference(*operands), other.op(*operands)
    if other.tolerance:
        largest = mx.maximum(mx.max(mx.abs(expected)), 1e-30)
        gauge.take(cast("float", (mx.max(mx.abs(got - expected)) / largest).item()), "the largest difference")
    else:
        apart = ulps(got, expected)
        gauge.take(apart, f"{apart:g} units in the last place, where none is allowed")
    return gauge


# MLX's and mlx-lm's ---------------------------------------------------------------------------------------------------


def norm(dtype: mx.Dtype, gauge: Gauge) -> None:
    x, weight = random((7, DIM), dtype), random((DIM,), dtype, 1)
    wanted = exact(x) / np.sqrt(np.mean(exact(x) ** 2, axis=-1, keepdims=True) + 1e-6) * exact(weight)
    gauge.compare(mx.fast.rms_norm(x, weight, 1e-6), plainly(wanted), "root mean square norm")


def attention(dtype: mx.Dtype, gauge: Gauge) -> None:
    """Of every mask that caches and drafters give: none, the kernel's own, bool for all rows, bool for each, sinks."""
    for dim in (32, DIM, 128):
        keys, values = random((2, KV_HEADS, KEYS, dim), dtype, 1), random((2, KV_HEADS, KEYS, dim), dtype, 2)
        for width in (1, 2, 7, 16):
            queries = random((2, HEADS, width, dim), dtype, width)
            causal = np.arange(KEYS)[None] - (KEYS - width) <= np.arange(width)[:, None]
            narrow = causal & (np.arange(KEYS)[None] - (KEYS - width) > np.arange(width)[:, None] - 9)
            each = np.stack([causal, narrow])[:, None]
            for name, mask, seen in (
                ("no mask", None, np.ones_like(causal)),
                ("the kernel's causal mask", "causal", causal),
                ("a mask for all rows", mx.array(narrow.tolist()), narrow),
                ("a mask for each sequence", mx.array(each.tolist()), each),
            ):
                attend = mx.fast.scaled_dot_product_attention
                got = attend(queries, keys, values, scale=dim**-0.5, mask=cast("Any", mask))
                gauge.compare(got, _attended(queries, keys, values, seen), f"{width} rows of {dim} with {name}")
    sinks = random((HEADS,), dtype, 5)
    got = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=dim**-0.5, mask=None, sinks=sinks)
    gauge.compare(got, _attended(queries, keys, values, np.ones_like(causal), exact(sinks)), "attention with sinks")


def _attended(q: mx.array, k: mx.array, v: mx.array, seen: np.ndarray, sinks: np.ndarray | None = None) -> mx.array:
    keys, values = (np.repeat(exact(x), HEADS // KV_HEADS, axis=1) for x in (k, v))
    scores = np.where(seen, exact(q) @ keys.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - top)
    return plainly(weights / total @ values)


def products(dtype: mx.Dtype, gauge: Gauge) -> None:
    """Dense and packed matrices, of 1 to 16 rows: the kernels change with the number of rows."""
    weight = random((96, 128), dtype, 1)
    for rows in range(1, 17):
        x = random((rows, 128), dtype, rows)
        gauge.compare(x @ weight.T, plainly(exact(x) @ exact(weight).T), f"a product of {rows} rows")
        for bits, group in ((4, 32), (4, 64), (8, 32)):
            packed, scales, biases = mx.quantize(weight, group_size=group, bits=bits)
            whole = (x.astype(mx.float32) for x in (scales, biases))
            dense = mx.dequantize(packed, *whole, group_size=group, bits=bits)
            got = mx.quantized_matmul(x, packed, scales, biases, transpose=True, group_size=group, bits=bits)
            where = f"a product of {rows} rows with {bits}-bit weights in groups of {group}"
            gauge.compare(got, plainly(exact(x) @ exact(dense).T), where)


def convolution(dtype: mx.Dtype, gauge: Gauge) -> None:
    """The short convolution of hybrids: each channel by itself."""
    for rows in (1, 2, 6, 16):
        x, weight = random((2, rows + 3, DIM), dtype, rows), random((DIM, 4, 1), dtype, 1)
        wanted = sum(exact(x)[:, i : i + rows] * exact(weight)[:, i, 0] for i in range(4))
        gauge.compare(mx.conv1d(x, weight, groups=DIM), plainly(np.array(wanted)), f"a convolution of {rows} rows")


def delta_rule(dtype: mx.Dtype, gauge: Gauge) -> None:
    """The recurrence of Qwen3.5 and Qwen3-Next, with and without mlx-lm's kernel (Metal only)."""
    from mlx_lm.models.gated_delta import gated_delta_update

    for rows in (1, 2, 6, 16):
        q, k, v = (random((2, rows, heads, 32), dtype, i) * 0.2 for i, heads in enumerate((2, 2, 4)))
        a, b = random((2, rows, 4), dtype, 3), random((2, rows, 4), dtype, 4)
        state = random((2, 4, 32, 32), mx.float32, 5) * 0.2
        constants = mx.zeros((4,)), mx.ones((4,))
        made: Any = [gated_delta_update(q, k, v, a, b, *constants, state, use_kernel=use) for use in (True, False)]
        for name, got, expected in zip(("outputs", "state"), *made, strict=True):
            gauge.compare(got, expected, f"{name} of {rows} rows")


def state_space(dtype: mx.Dtype, gauge: Gauge) -> None:
    """The recurrence of Mamba-2: mlx-lm's kernel for one row (Metal only) against its form for many."""
    from mlx_lm.models.ssm import ssm_attn, ssm_update

    x, b, c = random((2, 1, 4, 32), dtype), random((2, 1, 2, 32), dtype, 1), random((2, 1, 2, 32), dtype, 2)
    step, state = random((2, 1, 4), dtype, 3), random((2, 4, 32, 32), mx.float32, 4).astype(dtype)
    constants = mx.zeros((4,)), b, c, mx.ones((4,)).astype(dtype), step, mx.zeros((4,)).astype(dtype)
    limits = (0.0, 1e6)
    made: Any = [call(x, *constants, state, limits) for call in (ssm_update, ssm_attn)]
    for name, got, expected in zip(("outputs", "state"), *made, strict=True):
        gauge.compare(got, expected, name)


def compiled(dtype: mx.Dtype, gauge: Gauge) -> None:
    """A fused function against the same one operation by operation."""

    def gate(x: mx.array, y: mx.array) -> mx.array:
        return x * mx.sigmoid(x) * y

    x, y = random((5, DIM), dtype), random((5, DIM), dtype, 1)
    if os.environ.get("MLX_DISABLE_COMPILE"):
        return
    expected = gate(x, y)
    mx.eval(expected)
    mx.enable_compile()
    try:
        got = cast("Callable[..., mx.array]", mx.compile(gate))(x, y)
        mx.eval(got)
    finally:
        if backend.is_cpu():
            mx.disable_compile()  # see `run.py`
    gauge.compare(got, expected, "a fused gate")


KERNELS: dict[str, Callable[[mx.Dtype, Gauge], None]] = {
    "norm": norm,
    "attention": attention,
    "products": products,
    "convolution": convolution,
    "delta rule": delta_rule,
    "state space": state_space,
    "fused": compiled,
}


def run(name: str, precision: Precision) -> Finding:
    gauge = Gauge(LIMITS[precision.dtype])
    KERNELS[name](precision.dtype, gauge)
    return gauge.finding("kernels", name, precision.name)


# The same on every machine --------------------------------------------------------------------------------------------

BITS = [[3594430910, 534832770], [1784718894, 3813648515]]
"""What MLX makes of key 5."""


def random_bits() -> Finding:
    """Random numbers are the same bits everywhere, so that a seed gives one text on all machines."""
    gauge = Gauge(0.0)
    drawn = mx.random.split(mx.random.key(5)).tolist()
    if drawn != BITS:
        gauge.fail(f"{drawn} instead of {BITS}")
    return gauge.finding("kernels", "random bits", "float32")

"""Rotary positions from tables that all layers of a forward share.

Where MLX has no kernel for `mx.fast.rope` (on the CPU) each call is a graph of some thirty operations that works out
the same cosines and sines again, twice a layer. The tables here come from that very call, applied to unit vectors, so
that the products and sums which remain are the same ones, in the same precision, and the results equal to the last bit.

Whether they are used is decided by a race against `mx.fast.rope` in this process. Knows no model family.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import mlx.core as mx
import mlx.nn as nn

from engine.backend.kernels import Alternative, OpDispatch, Trial

Rope = Callable[[mx.array, int], mx.array]
"""(x [B, heads, T, dim], offset) -> x with row t turned to position offset + t."""
Factors = tuple[mx.array, mx.array]
RECENT = 8
"""Runs of positions kept: those of one round."""
PAGE = 256
"""A page begins at each multiple of this, and is twice as long: no run of so many rows crosses its end."""
PAGES = 32


class Tables:
    """Cosines and sines of one rope, worked out for a page of positions at a time and cut to those asked for."""

    def __init__(self, rope: Rope, dims: int, interleaved: bool) -> None:
        """rope: the reference, which turns the first `dims` of x's last axis; pairs (2i, 2i + 1) where `interleaved`,
        else (i, i + dims/2)."""
        self._rope = rope
        self._dims = dims
        self._interleaved = interleaved
        self._pages: dict[tuple[int, int, int], Factors] = {}
        self._kept: dict[tuple[int | tuple[int, ...], int, int], Factors] = {}

    def __call__(self, x: mx.array, offset: int | tuple[int, ...]) -> mx.array:
        """As the reference. x [B, heads, T, dim] float32; one offset for all of B, or one each."""
        cosines, sines = self._factors(offset, x.shape[2], x.shape[3])
        return x * cosines + self._partners(x) * sines

    def _factors(self, offset: int | tuple[int, ...], rows: int, width: int) -> Factors:
        """Factors of each element and of its partner: [1 or B, 1, rows, width]."""
        key = (offset, rows, width)
        found = self._kept.get(key)
        if found is None:
            if isinstance(offset, int):
                made = self._cut(offset, rows, width)
            else:
                cosines, sines = zip(*(self._cut(at, rows, width) for at in offset), strict=True)
                made = mx.concatenate(list(cosines)), mx.concatenate(list(sines))
            found = _keep(self._kept, key, made, RECENT)
        return found

    def _cut(self, offset: int, rows: int, width: int) -> Factors:
        # A page's rows are worked out together: only where they fill whole vectors of the processor is each of them
        # worked out as it would be alone.
        if rows > PAGE or self._dims % 16:
            return self._build(offset, rows, width)
        first = offset // PAGE * PAGE
        key = (first, 2 * PAGE, width)
        page = self._pages.get(key)
        if page is None:
            page = _keep(self._pages, key, self._build(*key), PAGES)
            mx.async_eval(page)  # it outlives this graph, which another thread may have built and thrown away
        cosines, sines = (part[:, :, offset - first : offset - first + rows] for part in page)
        return cosines, sines

    def _build(self, offset: int, rows: int, width: int) -> Factors:
        ones, rest = mx.ones((self._dims // 2,)), width - self._dims
        zeros = mx.zeros_like(ones)
        first = mx.stack([ones, zeros], axis=-1).reshape(-1) if self._interleaved else mx.concatenate([ones, zeros])
        turned = self._rope(mx.broadcast_to(first, (1, 1, rows, self._dims)), offset)
        # The pair (1, 0) turns into (cos, sin).
        if self._interleaved:
            cosine, sine = turned[..., 0::2], turned[..., 1::2]
            shape = (1, 1, rows, self._dims)
            cosines = mx.stack([cosine, cosine], axis=-1).reshape(shape)
            sines = mx.stack([-sine, sine], axis=-1).reshape(shape)
        else:
            cosine, sine = turned[..., : self._dims // 2], turned[..., self._dims // 2 :]
            cosines, sines = mx.concatenate([cosine, cosine], axis=-1), mx.concatenate([-sine, sine], axis=-1)
        if rest:
            cosines = mx.concatenate([cosines, mx.ones((1, 1, rows, rest))], axis=-1)
            sines = mx.concatenate([sines, mx.zeros((1, 1, rows, rest))], axis=-1)
        return cosines, sines

    def _partners(self, x: mx.array) -> mx.array:
        """Each element's other half of its pair."""
        dims, half = self._dims, self._dims // 2
        if self._interleaved:
            head = x[..., :dims]
            swapped = mx.stack([head[..., 1::2], head[..., 0::2]], axis=-1).reshape(head.shape)
            return mx.concatenate([swapped, x[..., dims:]], axis=-1) if dims < x.shape[-1] else swapped
        parts = [x[..., half:dims], x[..., :half]]
        return mx.concatenate([*parts, x[..., dims:]] if dims < x.shape[-1] else parts, axis=-1)


K = TypeVar("K")


def _keep(where: dict[K, Factors], key: K, made: Factors, most: int) -> Factors:
    while len(where) >= most:
        where.pop(next(iter(where)))
    where[key] = made
    return made


OPERATION, SHAPE = "rope", (1, 8, 4, 64)


def trial(rows: int = SHAPE[2], offset: int = 3) -> Trial:
    """Tables against `mx.fast.rope`, for so many rows from a position on."""
    shape = (*SHAPE[:2], rows, SHAPE[3])
    reference: Rope = lambda x, offset: mx.fast.rope(  # noqa: E731
        x, SHAPE[-1], traditional=False, base=10000.0, scale=1.0, offset=offset
    )
    tables = Tables(reference, SHAPE[-1], False)
    return Trial(
        OPERATION,
        shape,
        lambda x: reference(x, offset),
        [Alternative("tables", lambda x: tables(x, offset), frozenset({"cpu"}), tolerance=0.0)],
        lambda: (mx.random.normal(shape, key=mx.random.key(5)),),
    )


@lru_cache(maxsize=1)
def dispatch() -> OpDispatch:
    """The process's choice between `mx.fast.rope` and tables; raced when first asked for, in a few milliseconds."""
    chosen = OpDispatch()
    chosen.race(*trial(), repeats=25, clock=time.process_time)
    return chosen


def tabled() -> bool:
    """Whether tables serve ropes in this process."""
    return dispatch().choices[OPERATION, "x".join(map(str, SHAPE))].name == "tables"


def share(model: nn.Module) -> OpDispatch:
    """Let a model's ropes use common tables, where those won. Instances get a subclass of their own class; the
    library's classes and the parameter tree stay as they are."""
    if tabled():
        shared: dict[tuple[Any, ...], Tables] = {}
        for module in model.modules():
            key = _known(module)
            if key is not None:
                object.__setattr__(module, "_dspark_tables", shared.setdefault(key, _tables(module)))
                module.__class__ = _sharing(type(module))
    return dispatch()


def _known(module: nn.Module) -> tuple[Any, ...] | None:
    """What distinguishes a rope from others of its kind; None for a module that is no rope known to be linear in x
    without further factors."""
    name, origin = type(module).__name__, type(module).__module__
    told: Any = module
    if type(module) is nn.RoPE:
        return name, told.dims, told.traditional, told.base, told.scale
    if origin == "mlx_lm.models.rope_utils" and name in ("Llama3RoPE", "ProportionalRoPE"):
        return name, told.dims, told.traditional, *told._freqs.tolist()
    return None


def _tables(module: Any) -> Tables:
    base = type(module)
    return Tables(lambda x, offset: base.__call__(module, x, offset), module.dims, module.traditional)


@lru_cache(maxsize=8)
def _sharing(base: type[nn.Module]) -> type[nn.Module]:
    def call(self: Any, x: mx.array, offset: Any = 0) -> mx.array:
        if x.ndim == 4 and x.dtype == mx.float32 and (isinstance(offset, int) or offset.shape == x.shape[:1]):
            # Rows of a batch stand at positions of their own, which whoever gave them knew.
            at = offset if isinstance(offset, int) else tuple(offset.tolist())
            return self.__dict__["_dspark_tables"](x, at)
        return base.__call__(self, x, offset)

    return type(f"Shared{base.__name__}", (base,), {"__call__": call})

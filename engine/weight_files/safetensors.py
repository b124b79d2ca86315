"""The header of a .safetensors file, checked against the file; and its arrays, read only after that.

Everything that loads such a file goes through `load`, or through `check` before another library loads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.errors import WeightsDamaged

if TYPE_CHECKING:
    import mlx.core as mx

MAX_HEADER = 100_000_000
"""Bytes; the format's own limit."""

_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}


def check(file: Path) -> tuple[str, ...]:
    """Names of the tensors of a file that is what its header says.

    Raises:
        WeightsDamaged: otherwise.
    """
    try:
        size = file.stat().st_size
        length, header = _header(file, size)
        ends = [_end(name, entry) for name, entry in header.items() if name != "__metadata__"]
        _no_overlaps(header)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise WeightsDamaged(_advice(file, f"no readable header: {_reason(error)}")) from error
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        raise WeightsDamaged(_advice(file, f"{size} of {expected} bytes"))
    return tuple(name for name in header if name != "__metadata__")


def load(file: Path) -> dict[str, mx.array]:
    """The arrays of a checked file.

    Raises:
        WeightsDamaged: with a sentence.
    """
    check(file)
    try:
        import mlx.core as mx  # not before: who only checks a file has no model to run

        return cast("dict[str, mx.array]", mx.load(str(file), format="safetensors"))
    except (RuntimeError, ValueError, OSError) as error:
        raise WeightsDamaged(_advice(file, _reason(error))) from error


def _advice(file: Path, reason: str) -> str:
    return f"{file} is damaged or was cut short ({reason}). Delete it and download it again."


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _header(file: Path, size: int) -> tuple[int, Mapping[str, Any]]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise ValueError(f"{size} bytes cannot hold a header of {length}")
        header: Any = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError("it is not an object")
    return length, cast("dict[str, Any]", header)


def _end(name: str, entry: Mapping[str, Any]) -> int:
    """Where a tensor's data ends, when format, shape and place agree."""
    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    if not all(type(n) is int and n >= 0 for n in (begin, end, *shape)) or len(shape) > 16:
        raise ValueError(f"{name[:80]} has no usable shape or place")
    bits = _BITS.get(entry["dtype"])
    if bits is None:
        raise ValueError(f"{name[:80]} is stored as {str(entry['dtype'])[:20]}, which is not known")
    if prod(shape) * bits != 8 * (end - begin):
        raise ValueError(f"{name[:80]} is {shape} and takes {end - begin} bytes")
    return end


def _no_overlaps(header: Mapping[str, Any]) -> None:
    """A small file must not become many large arrays."""
    at = 0
    for begin, end in sorted(entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"):
        if begin < at:
            raise ValueError("two tensors share bytes")
        at = end

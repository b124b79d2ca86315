"""Snapshots as named arrays plus JSON, and a file of these that can be written by another thread.

The file is in safetensors format with a checksum per array; arrays of size zero are fine. Only plain data and the
dataclasses of `engine.drafters` are read back: a file can name no other code.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np

from engine.paths import replacing

DTYPES: dict[str, tuple[mx.Dtype, str]] = {
    "F32": (mx.float32, "<f4"),
    "F16": (mx.float16, "<f2"),
    "BF16": (mx.bfloat16, "<u2"),
    "I32": (mx.int32, "<i4"),
    "I64": (mx.int64, "<i8"),
    "U32": (mx.uint32, "<u4"),
    "U8": (mx.uint8, "|u1"),
    "I8": (mx.int8, "|i1"),
    "BOOL": (mx.bool_, "|b1"),
}
_NAMES = {dtype: name for name, (dtype, _) in DTYPES.items()}
TRUSTED = "engine.drafters."


def pack(value: Any, name: str, arrays: dict[str, mx.array]) -> Any:
    """JSON for a nested value; its arrays go to `arrays` under names that begin with `name`."""
    if isinstance(value, mx.array):
        key = f"{name}.{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = cast("list[Any]", value)
        if items and all(type(x) is int for x in items):
            # Thousands of token ids as JSON would dwarf the rest.
            return {"ints": pack(mx.array(items, dtype=mx.int64), name, arrays)}
        return {"items": [pack(x, name, arrays) for x in items]}
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith(TRUSTED):
        fields = {f.name: pack(getattr(value, f.name), name, arrays) for f in dataclasses.fields(value)}
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", "fields": fields}
    raise ValueError(f"{type(value).__name__} cannot be stored")


def unpack(value: Any, arrays: Mapping[str, mx.array]) -> Any:
    """The value that `pack` described."""
    if not isinstance(value, dict):
        return value
    data = cast("dict[str, Any]", value)
    if "array" in data:
        return arrays[data["array"]]
    if "ints" in data:
        return tuple(unpack(data["ints"], arrays).tolist())
    if "items" in data:
        return tuple(unpack(x, arrays) for x in data["items"])
    module, _, name = str(data["class"]).partition(":")
    if not module.startswith(TRUSTED) or not name.isidentifier():
        raise ValueError(f"a stored value of class {data['class']} is not read")
    made = getattr(importlib.import_module(module), name, None)
    if not (isinstance(made, type) and dataclasses.is_dataclass(made)):
        raise ValueError(f"there is no data class {data['class']} any more")
    return made(**{k: unpack(v, arrays) for k, v in data["fields"].items()})


@dataclass(frozen=True, slots=True)
class Encoded:
    """A file's content, ready for any thread: no MLX call is needed to write it."""

    meta: Mapping[str, Any]
    entries: Mapping[str, Mapping[str, Any]]
    parts: tuple[memoryview, ...]

    @property
    def nbytes(self) -> int:
        """Of the arrays."""
        return sum(p.nbytes for p in self.parts)

    def write(self, path: Path) -> None:
        """All or nothing: a reader finds the whole file or none, also when the machine stops in between."""
        sums = {name: zlib.crc32(part) for name, part in zip(self.entries, self.parts, strict=True)}
        stored = {"dspark": json.dumps(dict(self.meta)), "crc32": json.dumps(sums)}
        head = json.dumps({**self.entries, "__metadata__": stored}).encode()
        head += b" " * (-len(head) % 8)
        with replacing(path, durable=True) as part, part.open("wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            for piece in self.parts:
                file.write(piece)


def encode(meta: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> Encoded:
    """Evaluates the arrays; call on the model thread. The result shares their memory."""
    mx.eval(list(arrays.values()))
    entries: dict[str, Mapping[str, Any]] = {}
    parts: list[memoryview] = []
    at = 0
    for name, x in arrays.items():
        raw = np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x, copy=False)
        view = np.ascontiguousarray(raw).reshape(-1).view(np.uint8).data
        entries[name] = {"dtype": _NAMES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + view.nbytes]}
        parts.append(view)
        at += view.nbytes
    return Encoded(meta, entries, tuple(parts))


@dataclass(frozen=True, slots=True)
class Opened:
    """A file whose header was read; arrays are read one by one."""

    path: Path
    meta: Mapping[str, Any]
    nbytes: int
    _entries: Mapping[str, Any]
    _sums: Mapping[str, int]
    _begin: int

    @classmethod
    def at(cls, path: Path) -> Opened:
        """Raises OSError, or ValueError for anything that is not a whole file of ours."""
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
            if length > size - 8:
                raise ValueError(f"{path.name} is cut short")
            entries = json.loads(file.read(length))
        stored = entries.pop("__metadata__")
        end = max((e["data_offsets"][1] for e in entries.values()), default=0)
        if size != 8 + length + end:
            raise ValueError(f"{path.name} is cut short")
        return cls(path, json.loads(stored["dspark"]), size, entries, json.loads(stored["crc32"]), 8 + length)

    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> mx.array:
        """One array, checked. Raises OSError or ValueError."""
        entry = self._entries[name]
        begin, end = entry["data_offsets"]
        dtype, kind = DTYPES[entry["dtype"]]
        with self.path.open("rb") as file:
            file.seek(self._begin + begin)
            data = file.read(end - begin)
        if len(data) != end - begin or zlib.crc32(data) != self._sums[name]:
            raise ValueError(f"{self.path.name} is damaged")
        x = mx.array(np.frombuffer(data, dtype=kind).reshape(entry["shape"]))
        return x.view(mx.bfloat16) if dtype == mx.bfloat16 else x

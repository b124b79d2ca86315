"""GGUF files: metadata and tensors, for targets and drafters alike.

No library sees the file. Lengths, counts and places are checked against its size and against limits that no published
file comes near, before anything of that size is read or made. Knows no architecture.
"""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import mlx.core as mx
import numpy as np

from engine.errors import WeightsDamaged

MAX_STRING = 1 << 24
MAX_ITEMS = 1 << 22
"""Array items of all metadata together: four vocabularies of a quarter of a million, with merges, scores and types."""
MAX_TENSORS = 1 << 16
MAX_DIMS = 4

GROUP = 32
"""Values that share one scale in the formats that MLX multiplies as they are stored."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32


class _Format(NamedTuple):
    name: str
    block: int
    """Values of a block."""
    width: int
    """Bytes of a block."""


_PLAIN = {0: np.float32, 1: np.float16, 24: np.int8, 25: np.int16, 26: np.int32, 27: np.int64, 30: np.uint16}
_BF16 = 30
_FORMATS = {
    0: _Format("F32", 1, 4),
    1: _Format("F16", 1, 2),
    _BF16: _Format("BF16", 1, 2),
    24: _Format("I8", 1, 1),
    25: _Format("I16", 1, 2),
    26: _Format("I32", 1, 4),
    27: _Format("I64", 1, 8),
    2: _Format("Q4_0", 32, 18),
    3: _Format("Q4_1", 32, 20),
    8: _Format("Q8_0", 32, 34),
    6: _Format("Q5_0", 32, 22),
    7: _Format("Q5_1", 32, 24),
    10: _Format("Q2_K", 256, 84),
    11: _Format("Q3_K", 256, 110),
    12: _Format("Q4_K", 256, 144),
    13: _Format("Q5_K", 256, 176),
    14: _Format("Q6_K", 256, 210),
}
"""The file's number of a format -> what it is."""


class Packed(NamedTuple):
    """A matrix as MLX multiplies it without unpacking."""

    weight: mx.array
    scales: mx.array
    biases: mx.array


class Info(NamedTuple):
    """Where a tensor lies."""

    shape: tuple[int, ...]
    """Row-major; a GGUF lists the fastest dimension first."""
    kind: int
    offset: int
    """From the beginning of the file."""
    size: int


class Gguf:
    """A file whose header has been read and believed. Tensors are read one by one."""

    def __init__(self, path: Path) -> None:
        """Raises WeightsDamaged: no GGUF, cut short, or with numbers that cannot be."""
        self.path = path
        try:
            with path.open("rb") as file:
                self.metadata, self.tensors = _Header(file, path.stat().st_size).read()
        except (struct.error, ValueError, OSError) as error:  # UnicodeDecodeError is a ValueError
            raise WeightsDamaged(
                f"{path.name} is not a readable GGUF ({' '.join(str(error).split())[:200]}). "
                "Check its permissions, or delete it and fetch it again."
            ) from error

    def format(self, name: str) -> str:
        return _FORMATS[self.tensors[name].kind].name

    def dense(self, name: str) -> mx.array:
        """The tensor in its own number format; block-quantised ones as float16."""
        info, data = self.tensors[name], self._data(name)
        if info.kind == _BF16:
            return mx.array(data.view(np.uint16).reshape(info.shape)).view(mx.bfloat16)
        if info.kind in _PLAIN:
            return mx.array(data.view(_PLAIN[info.kind]).reshape(info.shape))
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        rows = data.reshape(*info.shape[:-1], -1)
        return mx.array(dequantize(rows, GGMLQuantizationType(info.kind)).astype(np.float16).reshape(info.shape))

    def packed(self, name: str) -> Packed | None:
        """A matrix of Q4_0, Q4_1 or Q8_0 without loss; None for other formats."""
        info = self.tensors[name]
        kind = self.format(name)
        if kind not in ("Q4_0", "Q4_1", "Q8_0"):
            return None
        blocks = self._data(name).reshape(-1, _FORMATS[info.kind].width)
        scales = blocks[:, :2].copy().view(np.float16)
        if kind == "Q8_0":
            words, biases = blocks[:, 2:] ^ 0x80, scales * np.float16(-128)
        else:
            at = 2 if kind == "Q4_0" else 4
            low, high = blocks[:, at:] & 0x0F, blocks[:, at:] >> 4
            values = np.concatenate([low, high], axis=1)
            words = values[:, ::2] | (values[:, 1::2] << 4)
            biases = scales * np.float16(-8) if kind == "Q4_0" else blocks[:, 2:4].copy().view(np.float16)
        lead, groups = info.shape[:-1], info.shape[-1] // GROUP
        weight = np.ascontiguousarray(words).view("<u4").reshape(*lead, -1)
        return Packed(
            mx.array(weight), mx.array(scales.reshape(*lead, groups)), mx.array(biases.reshape(*lead, groups))
        )

    def _data(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        info = self.tensors[name]
        try:
            data = np.fromfile(self.path, np.uint8, info.size, offset=info.offset)
        except OSError as error:
            raise WeightsDamaged(f"{self.path.name} cannot be read ({error.strerror or error}).") from error
        if data.size != info.size:
            raise WeightsDamaged(f"{self.path.name} was cut short while it was read; fetch it again.")
        return data


class _Header:
    """Reads the header of one file. Every method raises ValueError with a reason."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._items = 0

    def read(self) -> tuple[dict[str, Any], dict[str, Info]]:
        if self._file.read(4) != b"GGUF":
            raise ValueError("it does not begin as one")
        version, tensors, pairs = struct.unpack("<IQQ", self._take(20))
        if version not in (2, 3):
            raise ValueError(f"it is of version {version}, and 2 and 3 are read")
        if tensors > MAX_TENSORS:
            raise ValueError(f"it claims {tensors} tensors")
        self._count(pairs, 12)
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            name = self._string()
            if name in metadata:
                raise ValueError(f"it says {name[:80]} twice")
            metadata[name] = self._value(self._number("I"))
        infos = [self._info() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise ValueError(f"it claims an alignment of {str(alignment)[:20]}")
        return metadata, self._placed(infos, -(-self._file.tell() // alignment) * alignment)

    def _placed(self, infos: list[tuple[str, tuple[int, ...], int, int]], base: int) -> dict[str, Info]:
        """Tensors by name, each within the file and none within another."""
        tensors: dict[str, Info] = {}
        for name, shape, kind, at in infos:
            known = _FORMATS.get(kind)
            if known is None:
                raise ValueError(f"{name[:80]} is in number format {kind}, which is not read")
            if name in tensors or (shape and shape[-1] % known.block):
                raise ValueError(f"{name[:80]} is listed twice, or in rows of broken blocks")
            tensors[name] = Info(shape, kind, base + at, prod(shape) // known.block * known.width)
        end = 0
        for info in sorted(tensors.values(), key=lambda info: info.offset):
            if info.offset < end or info.offset + info.size > self._size:
                raise ValueError("it is cut short, or two tensors share bytes")
            end = info.offset + info.size
        return tensors

    def _info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dims = self._string(), self._number("I")
        if dims > MAX_DIMS:
            raise ValueError(f"{name[:80]} has {dims} dimensions")
        shape = struct.unpack(f"<{dims}Q", self._take(8 * dims))
        return name, tuple(reversed(shape)), self._number("I"), self._number("Q")

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise ValueError(f"metadata of type {kind}")
        inner, count = self._number("I"), self._number("Q")
        if inner in _SCALARS:
            width = struct.calcsize(f"<{_SCALARS[inner]}")
            self._count(count, width)
            return list(struct.unpack(f"<{count}{_SCALARS[inner]}", self._take(count * width)))
        if inner != _STRING:
            raise ValueError(f"metadata arrays of type {inner}")
        self._count(count, 8)
        return [self._string() for _ in range(count)]

    def _count(self, count: int, width: int) -> None:
        """So many items, of at least `width` bytes each, are still to come."""
        self._items += count
        if self._items > MAX_ITEMS or count * width > self._size - self._file.tell():
            raise ValueError(f"it claims {count} items")

    def _string(self) -> str:
        length = self._number("Q")
        if length > MAX_STRING:
            raise ValueError(f"it claims a text of {length} bytes")
        return self._take(length).decode("utf-8")

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _take(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) != length:
            raise ValueError("it is cut short")
        return data

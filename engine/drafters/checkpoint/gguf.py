"""Just enough of GGUF to read a drafter: metadata, and tensors in F32, F16 and BF16.

MLX's own reader widens or refuses some of these, and gives no metadata arrays in file order; drafters need both exact.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx
import numpy as np

from engine.errors import DrafterRefused, WeightsDamaged

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Metadata and tensors; shapes in row-major order (a GGUF lists the fastest dimension first).

    Raises:
        WeightsDamaged: not a GGUF, or cut short.
        DrafterRefused: a tensor in a block-quantised format.
    """
    try:
        with path.open("rb") as file:
            return _read(file)
    except (struct.error, UnicodeDecodeError, ValueError, OSError, MemoryError) as error:
        raise WeightsDamaged(f"{path.name} is not a readable GGUF (it may be cut short); fetch it again.") from error


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, mx.array]]:
    if file.read(4) != b"GGUF":
        raise ValueError("no GGUF magic")
    version, tensors, pairs = struct.unpack("<IQQ", file.read(20))
    if version < 2:
        raise ValueError(f"GGUF version {version}")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        name = _string(file)
        metadata[name] = _value(file, _scalar(file, "I"))
    infos: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(tensors):
        name = _string(file)
        dims = struct.unpack(f"<{(n := _scalar(file, 'I'))}Q", file.read(8 * n))
        infos.append((name, tuple(reversed(dims)), _scalar(file, "I"), _scalar(file, "Q")))
    alignment = int(metadata.get("general.alignment", _ALIGNMENT))
    base = -(-file.tell() // alignment) * alignment
    return metadata, {name: _tensor(file, name, shape, kind, base + at) for name, shape, kind, at in infos}


def _scalar(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]


def _string(file: BinaryIO) -> str:
    length = _scalar(file, "Q")
    data = file.read(length)
    if len(data) != length:
        raise ValueError("cut short")
    return data.decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _SCALARS:
        return _scalar(file, _SCALARS[kind])
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        inner, count = _scalar(file, "I"), _scalar(file, "Q")
        if inner in _SCALARS:
            code = _SCALARS[inner]
            return list(struct.unpack(f"<{count}{code}", file.read(count * struct.calcsize(f"<{code}"))))
        return [_value(file, inner) for _ in range(count)]
    raise ValueError(f"metadata of type {kind}")


def _tensor(file: BinaryIO, name: str, shape: tuple[int, ...], kind: int, offset: int) -> mx.array:
    if kind not in (0, 1, 30):
        raise DrafterRefused(
            f"Tensor {name} of this GGUF is block-quantised; only F32, F16 and BF16 load, so use the bf16 file."
        )
    count = int(np.prod(shape, dtype=np.int64))
    width = 4 if kind == 0 else 2
    file.seek(offset)
    data = file.read(count * width)
    if len(data) != count * width:
        raise ValueError(f"{name} is cut short")
    if kind == 30:
        return mx.array(np.frombuffer(data, dtype=np.uint16).reshape(shape)).view(mx.bfloat16)
    return mx.array(np.frombuffer(data, dtype=np.float32 if kind == 0 else np.float16).reshape(shape))

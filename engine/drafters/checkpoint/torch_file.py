"""One tensor out of a file that `torch.save` wrote, without torch and without running anything that the file names.

A pickle may name any callable of any module. This reader knows the few names of a plain tensor, has its own things
behind them, and refuses a file that uses another one: nothing is imported for it. Sizes are checked before reading.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np

from engine.errors import DrafterRefused, WeightsDamaged

MAX_PICKLE = 1 << 16
MAX_VALUES = 1 << 20
"""One row of an embedding has a few thousand."""

_WIDTHS = {"FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2}


class _Kind:
    """Stands for `torch.FloatStorage` and its like."""

    def __init__(self, name: str) -> None:
        self.name, self.width = name, _WIDTHS[name]


@dataclass(frozen=True, slots=True)
class _Storage:
    """Flat values that lie beside the pickle. They may be a whole embedding of which the tensor is one row."""

    kind: _Kind
    entry: zipfile.ZipInfo

    def read(self, archive: zipfile.ZipFile, offset: int, count: int) -> mx.array:
        width = self.kind.width
        if not 0 <= offset <= self.entry.file_size // width - count:
            raise ValueError("a tensor beyond its storage")
        with archive.open(self.entry) as file:
            file.seek(offset * width)
            data = file.read(count * width)
        if self.kind.name == "BFloat16Storage":
            return mx.array(np.frombuffer(data, dtype="<u2")).view(mx.bfloat16)
        return mx.array(np.frombuffer(data, dtype="<f4" if width == 4 else "<f2"))


class _Unsafe(Exception):
    """The pickle names something that a tensor does not need."""


class _Reader(pickle.Unpickler):
    def __init__(self, pickled: bytes, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(pickled))
        self._archive, self._root = archive, root

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        # Always something new: a pickle may hang attributes onto what it got.
        match module_name, global_name:
            case "torch._utils", "_rebuild_tensor_v2":
                return lambda *args: self._tensor(*args)
            case "torch._utils", "_rebuild_parameter":
                return lambda tensor, *_: tensor
            case "collections", "OrderedDict":
                return lambda *args: OrderedDict(*args)
            case "torch", name if name in _WIDTHS:
                return _Kind(name)
            case _:
                raise _Unsafe(f"{module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> _Storage:
        """("storage", kind, key, device, count)."""
        match pid:
            case ("storage", _Kind() as kind, str(key), str(), int()):
                return _Storage(kind, self._archive.getinfo(f"{self._root}/data/{key}"))
            case _:
                raise ValueError("no storage of a plain tensor")

    def _tensor(self, storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> mx.array:
        """A contiguous tensor over its storage."""
        if not isinstance(storage, _Storage) or not all(isinstance(n, int) and n > 0 for n in (*shape, *stride)):
            raise ValueError("no plain tensor")
        count = 1
        for n, s in zip(reversed(shape), reversed(stride), strict=True):
            if s != count and n != 1:
                raise ValueError("a tensor that is not contiguous")
            count *= n
        if count > MAX_VALUES:
            raise ValueError("too much for one row")
        return storage.read(self._archive, int(offset), count).reshape(shape)


def read_torch(path: Path) -> mx.array | Mapping[str, Any]:
    """The tensor, or the mapping of names to tensors and numbers, that a file holds.

    Raises:
        DrafterRefused: it names something else than tensors.
        WeightsDamaged: it is no such file, or cut short.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.count("/") == 1 and n.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > MAX_PICKLE:
                raise ValueError("too much for one tensor")
            made = _Reader(archive.read(name), archive, name.removesuffix("/data.pkl")).load()
    except _Unsafe as error:
        raise DrafterRefused(
            f"{path.name} wants to run {error} while it is read; only plain tensors are taken from it, so fetch a copy "
            "that you trust, or another drafter."
        ) from None
    except Exception as error:  # a damaged pickle raises anything
        raise WeightsDamaged(
            f"{path.name} holds no tensor that can be read ({str(error) or type(error).__name__}); fetch it again."
        ) from error
    if isinstance(made, mx.array):
        return made
    if isinstance(made, Mapping):
        return cast(Mapping[str, Any], made)
    raise WeightsDamaged(f"{path.name} holds no tensor that can be read ({type(made).__name__}); fetch it again.")

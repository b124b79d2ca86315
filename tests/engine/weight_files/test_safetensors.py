"""Headers of .safetensors files are believed only as far as the file goes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.errors import WeightsDamaged
from engine.weight_files import json_file, safetensors

ROOT = Path(__file__).parents[3]


def entry(dtype: Any = "F32", shape: Any = (4,), begin: Any = 0, end: Any = 16) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, header: Any, body: bytes = bytes(16), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)
    return path


HOSTILE: dict[str, Any] = {
    "a list": [1],
    "no entry": {"w": 3},
    "no place": {"w": {"dtype": "F32", "shape": [4]}},
    "a place before the data": {"w": entry(begin=-8, end=8)},
    "a place beyond the file": {"w": entry(shape=(1 << 40,), end=1 << 42)},
    "a place back to front": {"w": entry(begin=16, end=0)},
    "an unknown format": {"w": entry(dtype="Q7")},
    "a format in numbers": {"w": entry(dtype=[1])},
    "a shape of 2^120": {"w": entry(shape=(1 << 60, 1 << 60))},
    "a shape that is not its bytes": {"w": entry(shape=(5,))},
    "a negative shape": {"w": entry(shape=(-2, -2))},
    "a shape in words": {"w": entry(shape="4")},
    "half a number": {"w": entry(shape=(4.0,))},
    "a shape of many dimensions": {"w": entry(shape=(1,) * 1000 + (4,))},
    "one place for two": {"v": entry(), "w": entry()},
    "a deep nest": b'{"w":' + b"[" * 200_000,
    "no json": b"<html>404</html>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_end_in_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsDamaged, match="Delete it and download") as caught:
        safetensors.load(write(tmp_path / "x.safetensors", HOSTILE[name]))
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("length", [0, 1, 1 << 31, 1 << 60, (1 << 64) - 1])
def test_a_header_longer_than_its_file_is_not_read(length: int, tmp_path: Path) -> None:
    with pytest.raises(WeightsDamaged, match="no readable header"):
        safetensors.load(write(tmp_path / "x.safetensors", {"w": entry()}, length=length))


def test_what_mlx_writes_is_read(tmp_path: Path) -> None:
    arrays = {"a": mx.random.normal((3, 5)).astype(mx.bfloat16), "none": mx.zeros((0, 4)), "one": mx.array(3)}
    mx.save_safetensors(str(tmp_path / "x.safetensors"), arrays, {"format": "mlx"})
    made = safetensors.load(tmp_path / "x.safetensors")
    assert set(made) == set(safetensors.check(tmp_path / "x.safetensors")) == set(arrays)
    assert all(mx.array_equal(made[name], value) for name, value in arrays.items())


def test_nothing_else_of_ours_has_mlx_read_a_file() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "engine").rglob("*.py")
        if re.search(r"\bmx\.load\(", path.read_text(encoding="utf-8"))
    }
    # A trainer checks its own file first, and needs what MLX tells beside the arrays.
    assert found == {"engine/weight_files/safetensors.py", "engine/training/loop/train.py"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'\xef\xbb\xbf{"a": 1}', "byte order mark: save it as UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "byte order mark"),
        (b"{" + b'"a":[' * 200_000, "cannot be read"),
        (b"[1]", "not a JSON object"),
        (b'{"a": "\xff"}', "cannot be read"),
    ],
)
def test_json_that_is_not_read_says_why(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(WeightsDamaged, match=says):
        json_file.read_object(tmp_path / "config.json")
    assert json_file.read_object(tmp_path / "absent.json") == {}

"""GGUF files that lie end in one sentence, within seconds and little memory; honest ones are read exactly."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine.errors import WeightsDamaged
from engine.weight_files.gguf import Gguf

ROOT = Path(__file__).parents[3]
HUGE = 1 << 60


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def pair(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: bytes, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file(pairs: list[bytes], tensors: list[bytes], body: bytes = bytes(256), **claimed: int) -> bytes:
    head = b"GGUF" + struct.pack(
        "<IQQ", claimed.get("version", 3), claimed.get("of_tensors", len(tensors)), claimed.get("of_pairs", len(pairs))
    )
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + body


NAME = pair(b"general.architecture", 8, text(b"dspark"))


def nested(depth: int) -> bytes:
    return pair(b"deep", 9, struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 0, 0))


HOSTILE = {
    "a key of 2^60": file([text(b"x", HUGE)], [], of_pairs=1),
    "a text of 2^60": file([NAME, pair(b"x", 8, text(b"", HUGE))], []),
    "a text of 2^32": file([pair(b"x", 8, text(b"", 1 << 32))], []),
    "arrays in arrays": file([nested(100_000)], []),
    "an array of arrays": file([nested(1)], []),
    "an array of 2^60": file([pair(b"x", 9, struct.pack("<IQ", 0, HUGE))], []),
    "an array of 2^60 texts": file([pair(b"x", 9, struct.pack("<IQ", 8, HUGE))], []),
    "2^60 pairs": file([], [], of_pairs=HUGE),
    "2^60 tensors": file([NAME], [], of_tensors=HUGE),
    "a pair twice": file([NAME, NAME], []),
    "an unknown type": file([pair(b"x", 77, b"")], []),
    "no alignment": file([pair(b"general.alignment", 4, struct.pack("<I", 0))], []),
    "an alignment in words": file([pair(b"general.alignment", 8, text(b"32"))], []),
    "2^31 dimensions": file([NAME], [text(b"w") + struct.pack("<I", 1 << 31)]),
    "a shape of 2^120": file([NAME], [tensor(b"w", (HUGE, HUGE), 0, 0)]),
    "a shape of 2^64": file([NAME], [tensor(b"w", (1 << 32, 1 << 32), 0, 0)]),
    "a place beyond": file([NAME], [tensor(b"w", (4,), 0, HUGE)]),
    "one place for two": file([NAME], [tensor(b"v", (64,), 0, 0), tensor(b"w", (64,), 0, 0)]),
    "a name twice": file([NAME], [tensor(b"w", (4,), 0, 0), tensor(b"w", (4,), 0, 32)]),
    "an unknown format": file([NAME], [tensor(b"w", (4,), 99, 0)]),
    "half a block": file([NAME], [tensor(b"w", (16,), 8, 0)]),
    "bytes that are no text": file([pair(b"x", 8, text(b"\xff\xfe"))], []),
    "the next version": file([NAME], [], version=4),
    "version 1": file([NAME], [], version=1),
    "nothing": b"",
    "a magic": b"GGUF",
    "a web page": b"<html>404 not found</html>" * 10,
}

CHILD = """
import resource, sys
from pathlib import Path
from engine import backend
from engine.drafters.checkpoint import read_checkpoint
from engine.errors import DsparkError
from engine.targets.gguf import load_gguf
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for path in sorted(Path(sys.argv[1]).iterdir()):
    for read in (load_gguf, read_checkpoint):
        try:
            read(path)
            print(path.name, "was read")
        except DsparkError as error:
            if len(str(error)) > 600 or str(error).count(chr(10)):
                print(path.name, "is no sentence:", str(error)[:300])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
print("memory", grown) if grown > 200_000 and sys.platform == "linux" else None
"""


def test_hostile_files_end_in_a_sentence(tmp_path: Path) -> None:
    """In a process of its own: what goes wrong here are crashes, endless reads and all of the memory."""
    for name, content in HOSTILE.items():
        (tmp_path / f"{name}.gguf").write_bytes(content)
    run = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("kind", [2, 3, 8])
def test_what_mlx_multiplies_is_what_the_reference_unpacks(kind: int, tmp_path: Path) -> None:
    values = np.random.default_rng(kind).normal(size=(3, 64)).astype(np.float32)
    stored = quantize(values, GGMLQuantizationType(kind))
    (tmp_path / "x.gguf").write_bytes(file([NAME], [tensor(b"w", (64, 3), kind, 0)], stored.tobytes()))
    made = Gguf(tmp_path / "x.gguf")
    packed = made.packed("w")
    assert packed is not None
    bits = 8 if kind == 8 else 4
    ours = mx.dequantize(*(a.astype(mx.float32) if a.dtype == mx.float16 else a for a in packed), 32, bits)
    theirs = dequantize(stored, GGMLQuantizationType(kind))
    np.testing.assert_allclose(np.array(ours), theirs, atol=2e-3)
    np.testing.assert_allclose(np.array(made.dense("w")), theirs, atol=2e-3)


@pytest.mark.parametrize("kind", [10, 11, 12, 13, 14])
def test_k_quants_are_unpacked_by_the_reference(kind: int, tmp_path: Path) -> None:
    width = {10: 84, 11: 110, 12: 144, 13: 176, 14: 210}[kind]
    blocks = np.random.default_rng(kind).integers(0, 60, size=(2, 2 * width), dtype=np.uint8)
    (tmp_path / "x.gguf").write_bytes(file([NAME], [tensor(b"w", (512, 2), kind, 0)], blocks.tobytes()))
    made = Gguf(tmp_path / "x.gguf")
    assert made.packed("w") is None and made.dense("w").shape == (2, 512)
    theirs = dequantize(blocks, GGMLQuantizationType(kind)).astype(np.float16)
    assert np.array_equal(np.array(made.dense("w")), theirs)


def test_it_reads_as_mlx_does(tmp_path: Path) -> None:
    arrays = {"a": mx.random.normal((4, 32)), "b": mx.random.normal((7,)).astype(mx.float16)}
    mx.save_gguf(str(tmp_path / "x.gguf"), arrays, {"n": mx.array(3), "t": "words", "l": ["a", "b"]})
    made = Gguf(tmp_path / "x.gguf")
    assert (made.metadata["t"], made.metadata["l"]) == ("words", ["a", "b"])
    assert all(mx.array_equal(made.dense(name), value) for name, value in arrays.items())


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(file([NAME], [tensor(b"w", (64,), 0, 0)]))
    made = Gguf(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(WeightsDamaged, match="cut short"):
        made.dense("w")

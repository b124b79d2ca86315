"""A mask row in a file of its own, as some trainers save it with torch: taken without torch, and without running it."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.drafters.checkpoint import read_checkpoint
from engine.drafters.checkpoint.torch_file import read_torch
from engine.drafters.load import load_drafter
from engine.errors import DrafterRefused, WeightsDamaged
from tests.engine.drafters import synthetic as s
from tests.engine.drafters.reference import block_hidden

ROW = mx.random.normal((s.H,), key=mx.random.key(5))
FILE = "mask_embedding.pt"


def folder(at: Path, value: Any = ROW, mask: int | None = s.MASK, extra: bytes = b"") -> Path:
    made = s.zlab()
    made.config["dflash_config"]["mask_token_id"] = mask
    made.save(at)
    s.write_torch(at / FILE, value, extra)
    return at


def hidden(path: Path, lender: s.Lender) -> np.ndarray:
    drafter = load_drafter(path, lender)
    context = drafter.new_context()
    drafter.observe(context, TAPS, 0, [0] * 12)
    return np.array(drafter.block([context], [5], 15).astype(mx.float32))


TAPS = mx.random.normal((12, len(s.TAPS) * s.H), key=mx.random.key(3))


@pytest.mark.parametrize(
    ("value", "mask"),
    [
        (ROW, s.MASK),
        (ROW, None),
        (ROW[None], s.MASK),
        ({"mask_embedding": ROW}, s.MASK),
        ({"mask_token_id": s.MASK, "embedding": ROW}, s.MASK),
        (ROW.astype(mx.bfloat16), s.MASK),
    ],
    ids=["row", "no id in the config", "one of one", "named", "with its id", "bfloat16"],
)
def test_the_row_of_the_file_fills_the_masks(value: Any, mask: int | None, tmp_path: Path) -> None:
    """Just as if the embedding table held it, which it does not."""
    lender = s.Lender()
    ours = hidden(folder(tmp_path, value, mask), lender)
    made = read_checkpoint(tmp_path)
    table = mx.array(lender.table)
    table[s.MASK] = made.tensors["mask_embedding"].astype(mx.float32)
    config = made.config if mask is not None else replace(made.config, mask_token_id=s.MASK)
    theirs = block_hidden(config, {n: v for n, v in made.tensors.items() if n != "mask_embedding"}, TAPS, 5, table)
    np.testing.assert_allclose(ours, theirs, atol=2e-4, rtol=1e-3)
    (tmp_path / FILE).unlink()
    if mask is not None:
        assert np.abs(hidden(tmp_path, lender) - ours).max() > 0.01


def test_values_may_be_scaled(tmp_path: Path) -> None:
    """`attention_value_scale`, where the drafter's author nested it; at the top it is a copy of the target's."""
    lender = s.Lender()
    plain = hidden(s.zlab().save(tmp_path / "plain"), lender)
    noise = s.zlab()
    noise.config["attention_value_scale"] = 0.7
    np.testing.assert_array_equal(hidden(noise.save(tmp_path / "noise"), lender), plain)
    scaled = s.zlab()
    scaled.config["dflash_config"]["attention_value_scale"] = 0.7
    by_hand = s.zlab()
    for name in by_hand.tensors:
        if name.endswith("v_proj.weight"):
            by_hand.tensors[name] = by_hand.tensors[name] * 0.7
    ours = hidden(scaled.save(tmp_path / "scaled"), lender)
    np.testing.assert_allclose(ours, hidden(by_hand.save(tmp_path / "by hand"), lender), atol=1e-5)


EVIL = {
    "a system call": b"cposix\nsystem\n(X\x04\x00\x00\x00truetR0",
    "an import": b"cbuiltins\neval\n(X\x01\x00\x00\x001tR0",
    "torch itself": b"ctorch.storage\n_load_from_bytes\n0",
    "a name in a newer opcode": b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x930",
}


@pytest.mark.parametrize("extra", EVIL.values(), ids=EVIL)
def test_a_file_that_names_anything_else_is_refused_and_not_run(
    extra: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (("os", "system"), ("posix", "system"), ("builtins", "eval")):
        monkeypatch.setattr(f"{module}.{name}", lambda *_: pytest.fail("it was run"))
    with pytest.raises(DrafterRefused, match="wants to run .* only plain tensors"):
        load_drafter(folder(tmp_path, extra=extra), s.Lender())


@pytest.mark.parametrize(
    ("value", "error", "sentence"),
    [
        ({"mask_token_id": 7, "embedding": ROW}, DrafterRefused, "row of token 7, but the config's mask token is 60"),
        ({"a": ROW, "b": ROW}, DrafterRefused, "instead of one row"),
        (mx.zeros((2, s.H)), DrafterRefused, "instead of one row"),
        ({"mask_token_id": s.MASK}, DrafterRefused, "instead of one row"),
        (mx.zeros((s.H + 1,)), DrafterRefused, r"mask_embedding is \[33\], not \[32\]"),
        ("no tensor", WeightsDamaged, "no tensor that can be read"),
    ],
)
def test_mutated_files_are_refused(value: Any, error: type[Exception], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=sentence):
        load_drafter(folder(tmp_path, value), s.Lender())


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = folder(tmp_path) / FILE
    whole = file.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 4):
        file.write_bytes(whole[:length])
        with pytest.raises(WeightsDamaged, match="no tensor that can be read"):
            read_torch(file)
    file.write_bytes(b"\x80\x02}.")  # how torch saved until 2020
    with pytest.raises(WeightsDamaged):
        read_torch(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + b"N0" * (1 << 20) + b"N.")
    with pytest.raises(WeightsDamaged, match="too much"):
        read_torch(file)


def test_a_row_of_a_larger_storage_is_read_alone(tmp_path: Path) -> None:
    """Torch saves all that a view lies in."""
    table = mx.random.normal((9, 8), key=mx.random.key(1))
    path = s.write_torch(tmp_path / "t.pt", table)
    with zipfile.ZipFile(path) as archive:
        pickled, data = archive.read("mask_embedding/data.pkl"), archive.read("mask_embedding/data/0")
    number = b"J%c\x00\x00\x00"
    shape = b"(" + number % 9 + number % 8 + b"t(" + number % 8 + number % 1 + b"t"
    view = number % 16 + b"(" + number % 8 + b"t(" + number % 1 + b"t"
    assert number % 0 + shape in pickled
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mask_embedding/data.pkl", pickled.replace(number % 0 + shape, view))
        archive.writestr("mask_embedding/data/0", data)
    found = read_torch(path)
    assert isinstance(found, mx.array)
    assert mx.array_equal(found, table[2])

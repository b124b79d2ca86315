"""A drafter on disk: its normalised config and its tensors, from a folder or a GGUF file.

Reads config.json and safetensors only; no code of a checkpoint is imported, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import section
from engine.drafters.checkpoint.layouts import detect, gguf
from engine.drafters.checkpoint.layouts.packaging import Packaging
from engine.drafters.checkpoint.nvfp4 import is_packed, unpack
from engine.drafters.checkpoint.torch_file import read_torch
from engine.drafters.nn.tensors import MASK_ROW
from engine.errors import DrafterRefused, WeightsDamaged, WeightsMissing
from engine.weight_files import safetensors
from engine.weight_files.json_file import read_object


class Checkpoint(NamedTuple):
    """What a file says, before it is matched with a target."""

    config: DrafterConfig
    tensors: dict[str, mx.array]
    path: Path


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a drafter folder or GGUF file.

    Raises:
        DrafterRefused: it is no drafter, or one that would not be what it says.
        WeightsMissing, WeightsDamaged: files are absent or unreadable.
    """
    where = Path(str(path).removeprefix("gguf:")).expanduser()
    if where.is_dir() and not (where / "config.json").is_file() and len(only := list(where.glob("*.gguf"))) == 1:
        where = only[0]
    if where.suffix.lower() == ".gguf":
        config, tensors = gguf.read(where)
        return Checkpoint(config, tensors, where)
    config = read_config(where)
    detect(config)  # what is no drafter is refused as that, and not for the weights that it lacks
    arrays = _arrays(where)
    config = _by_tensors(config, arrays)
    packaging = detect(config)
    mask = _mask_row(where, config)
    normalised = packaging.read({**config, MASK_ROW: True} if mask else config)
    return Checkpoint(normalised, _named(arrays, packaging, normalised.quantization) | mask, where)


def _by_tensors(config: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> Mapping[str, Any]:
    """With the rank of a Markov head that the weights have and the config does not mention: labels lie."""
    first = arrays.get("markov_head.markov_w1.weight")
    places = (config, section(config, "dflash_config"))
    if first is None or any(p.get(n) is not None for p in places for n in ("markov_rank", "dspark_markov_rank")):
        return config
    return {**config, "markov_rank": first.shape[-1]}


def read_config(folder: Path) -> Mapping[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise WeightsMissing(
            f"{folder} has no config.json, so it is not a drafter; give a folder, a repository or a GGUF."
        )
    return read_object(file, "drafter")


def _mask_row(folder: Path, config: Mapping[str, Any]) -> dict[str, mx.array]:
    """The row that fills a block's masks [H], where its trainer saved it beside the weights; {} without such a file."""
    file = folder / f"{MASK_ROW}.pt"
    if not file.is_file():
        return {}
    made = read_torch(file)
    if isinstance(made, Mapping):
        stated, wanted = made.get("mask_token_id"), section(config, "dflash_config").get("mask_token_id")
        wanted = config.get("mask_token_id") if wanted is None else wanted
        if None not in (stated, wanted) and stated != wanted:
            raise DrafterRefused(
                f"{file.name} is the row of token {stated}, but the config's mask token is {wanted}; "
                "fetch a complete copy of the drafter."
            )
        rows = [value for value in made.values() if isinstance(value, mx.array)]
    else:
        rows = [made]
    if len(rows) != 1 or rows[0].size != rows[0].shape[-1]:
        raise DrafterRefused(
            f"{file.name} holds {[list(row.shape) for row in rows]} instead of one row; fetch a complete copy."
        )
    return {MASK_ROW: rows[0].reshape(-1)}


def _arrays(folder: Path) -> dict[str, mx.array]:
    """By their own names; read from the file only where they are used."""
    arrays: dict[str, mx.array] = {}
    for file in _files(folder):
        arrays |= safetensors.load(file)
    # Some exports wrap the module; the names inside are the same.
    if arrays and all(name.startswith("model.") for name in arrays):
        arrays = {name.removeprefix("model."): value for name, value in arrays.items()}
    return arrays


def _named(
    arrays: Mapping[str, mx.array], packaging: Packaging, quantization: tuple[int, int] | None
) -> dict[str, mx.array]:
    named = {
        packaging.rename(name): value
        for name, value in arrays.items()
        if not packaging.dropped(name) and not name.endswith("rotary_emb.inv_freq")
    }
    return _dense(named, quantization)


def _files(folder: Path) -> list[Path]:
    """The safetensors of a folder; with an index, exactly those that it names."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise WeightsMissing(
                f"{folder} holds no safetensors; fetch the drafter's weights, or give another drafter."
            )
        return files
    weight_map = read_object(index, "drafter").get("weight_map")
    if not isinstance(weight_map, dict):
        raise WeightsDamaged(f"{index.name} cannot be read, it has no weight_map; fetch the drafter again.")
    files = [folder / name for name in sorted({str(n) for n in cast("dict[str, Any]", weight_map).values()})]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise WeightsMissing(f"The drafter lacks {', '.join(absent[:8])}; resume its download.")
    return files


def _dense(arrays: dict[str, mx.array], quantization: tuple[int, int] | None) -> dict[str, mx.array]:
    """Undo the number formats of the file: MLX's quantisation and NVFP4. Small heads then load from any of them."""
    dense: dict[str, mx.array] = {}
    consumed: set[str] = set()
    for name, value in arrays.items():
        stem = name.removesuffix(".weight")
        if name.endswith(".weight") and f"{stem}.scales" in arrays:
            if quantization is None:
                raise DrafterRefused(
                    f"{name} is quantised, but the config does not say how (quantization); fetch a complete copy."
                )
            scales, biases = arrays[f"{stem}.scales"], arrays.get(f"{stem}.biases")
            dense[name] = _dequantize(name, value, scales, biases, quantization)
            consumed |= {f"{stem}.scales", f"{stem}.biases"}
        elif is_packed(name, arrays):
            dense[name] = unpack(name, arrays)
            consumed |= {f"{stem}.weight_scale", f"{stem}.weight_scale_2", f"{stem}.input_scale"}
        elif mx.issubdtype(value.dtype, mx.floating) or name == "d2t":
            dense[name] = value
        elif not name.endswith((".scales", ".biases", "_scale", "_scale_2")):
            raise DrafterRefused(
                f"{name} is stored as {str(value.dtype).removeprefix('mlx.core.')}, which is not understood; "
                "use the bf16 file of this drafter."
            )
        else:
            dense[name] = value
    return {name: value for name, value in dense.items() if name not in consumed}


def _dequantize(
    name: str, weight: mx.array, scales: mx.array, biases: mx.array | None, quantization: tuple[int, int]
) -> mx.array:
    group, bits = quantization
    try:
        return mx.dequantize(weight, scales, biases, group_size=group, bits=bits)
    except (ValueError, RuntimeError) as error:
        raise DrafterRefused(
            f"{name} does not fit the stated quantisation of {bits} bits in groups of {group}; fetch a complete copy."
        ) from error

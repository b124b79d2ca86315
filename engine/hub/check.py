"""Is a checkpoint folder whole, undamaged and free of code? Reads headers only, and never the network."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from engine.errors import RemoteCodeRefused, WeightsDamaged, WeightsMissing

ENV_TRUST = "DSPARK_TRUST_REMOTE_CODE"
INDEX = "model.safetensors.index.json"
_CODE_FILES = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_CODE_KEYS = ("auto_map", "model_file")
_MAX_HEADER = 100_000_000

_trust = False


def trust_remote_code(allow: bool = True) -> None:
    """Let checkpoints run their own code, for the rest of this process."""
    global _trust
    _trust = allow


def trusted() -> bool:
    return _trust or os.environ.get(ENV_TRUST, "") not in ("", "0", "false", "no")


def check_folder(folder: str | Path, resume: str = "") -> None:
    """Refuse a folder that cannot be loaded safely.

    resume: the command that completes an interrupted download, for the message.

    Raises:
        WeightsMissing: no config, no weights, or files that the index names are absent.
        WeightsDamaged: a weight file is shorter than its header says, or no such file at all.
        RemoteCodeRefused: the checkpoint names code of its own and nobody allowed it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsMissing(f"There is no folder {folder}.")
    if not (folder / "config.json").is_file():
        inside = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
        raise WeightsMissing(
            f"{folder} is not a model: it has no config.json (it holds {inside}). "
            "Give the folder that holds config.json beside the weights."
        )
    refuse_code(folder)
    if missing := missing_files(folder):
        way = f" To complete it: {resume}" if resume else " Download the model again to complete it."
        raise WeightsMissing(f"{folder} lacks {', '.join(missing)}.{way}")
    for file in weight_files(folder):
        check_safetensors(file)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a loader would read."""
    return sorted(p for p in folder.glob("*.safetensors") if not p.name.startswith("."))


def missing_files(folder: Path) -> tuple[str, ...]:
    """Names of weight files that ought to be here and are not; a dangling link counts as absent."""
    index = folder / INDEX
    if index.is_file():
        named: Any = _json(index).get("weight_map")
        if not isinstance(named, dict):
            raise WeightsDamaged(f"{index} has no weight_map. Delete it and download the model again.")
        return tuple(sorted({str(n) for n in named.values() if not (folder / str(n)).is_file()}))
    if any(p.is_file() for p in weight_files(folder)):
        return ()
    return ("model.safetensors",)


def refuse_code(folder: Path) -> None:
    """Raise RemoteCodeRefused when a config names code of the checkpoint's own."""
    if trusted():
        return
    found: list[str] = []
    for name in _CODE_FILES:
        if (folder / name).is_file():
            config = _json(folder / name)
            found += [f"{key} in {name}" for key in _CODE_KEYS if config.get(key)]
    if found:
        raise RemoteCodeRefused(
            f"{folder.name} wants to run Python code of its own ({', '.join(found)}), which is refused. "
            "If you trust it, start again with --trust-remote-code."
        )


def check_safetensors(file: Path) -> None:
    """Raise WeightsDamaged unless the file is as long as its header says."""
    size = file.stat().st_size
    advice = f"{file} is damaged or was cut short ({{}}). Delete it and download the model again."
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                raise ValueError("no valid header")
            header: Any = json.loads(stream.read(length))
            ends = [int(tensor["data_offsets"][1]) for name, tensor in header.items() if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise WeightsDamaged(advice.format(f"{size} bytes, no readable header")) from error
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        raise WeightsDamaged(advice.format(f"{size} of {expected} bytes"))


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsDamaged(f"{path} cannot be read ({error}). Delete it and download the model again.") from error
    return value if isinstance(value, dict) else {}

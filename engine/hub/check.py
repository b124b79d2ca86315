"""Is a checkpoint folder whole, undamaged and free of code? Reads headers only, and never the network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from engine.errors import RemoteCodeRefused, WeightsDamaged, WeightsMissing
from engine.weight_files import safetensors
from engine.weight_files.json_file import read_object

ENV_TRUST = "DSPARK_TRUST_REMOTE_CODE"
INDEX = "model.safetensors.index.json"
_CODE_FILES = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_CODE_KEYS = ("auto_map", "model_file")

_trust = False


def trust_remote_code(allow: bool = True) -> None:
    """Let checkpoints run their own code, for the rest of this process."""
    global _trust
    _trust = allow


def trusted() -> bool:
    return _trust or os.environ.get(ENV_TRUST, "") not in ("", "0", "false", "no")


def check_folder(folder: str | Path, resume: str = "") -> tuple[str, ...]:
    """Refuse a folder that cannot be loaded safely; the names of its tensors.

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
    return tuple(name for file in weight_files(folder) for name in safetensors.check(file))


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a loader would read."""
    return sorted(p for p in folder.glob("*.safetensors") if not p.name.startswith("."))


def missing_files(folder: Path) -> tuple[str, ...]:
    """Names of weight files that ought to be here and are not; a dangling link counts as absent."""
    index = folder / INDEX
    if index.is_file():
        named: Any = read_object(index).get("weight_map")
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
            config = read_object(folder / name)
            found += [f"{key} in {name}" for key in _CODE_KEYS if config.get(key)]
    if found:
        raise RemoteCodeRefused(
            f"{folder.name} wants to run Python code of its own ({', '.join(found)}), which is refused. "
            "If you trust it, start again with --trust-remote-code."
        )

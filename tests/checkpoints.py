"""Checkpoint folders made by hand, for tests of finding and checking; they hold no model that could run."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 8}


def safetensors(values: int = 16, name: str = "w") -> bytes:
    """A valid file with one float32 tensor."""
    header = json.dumps({name: {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * values)


def write(folder: Path, *, weights: tuple[str, ...] = ("model.safetensors",), **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    for name in weights:
        (folder / name).write_bytes(safetensors())
    return folder


def index(folder: Path, *shards: str) -> None:
    table = {"weight_map": {f"layer.{i}": shard for i, shard in enumerate(shards)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table))


def in_hub_cache(cache: Path, repo: str, **kwargs: Any) -> Path:
    """A snapshot as the hub library lays it out, with `main` pointing at it."""
    entry = cache / f"models--{repo.replace('/', '--')}"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text("abc123")
    return write(entry / "snapshots" / "abc123", **kwargs)

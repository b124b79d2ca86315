"""Write the self-test's tiny random drafters as checkpoint folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.drafters.tiny_drafters import drafter_parts


def make_drafter(kind: str, out: Path, **sizes: Any) -> Path:
    """kind and sizes: see `drafter_parts`."""
    config, weights = drafter_parts(kind, **sizes)
    out.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return out

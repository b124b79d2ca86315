"""Golden drafters, and targets that lend to them."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

from engine.drafters.load import load_drafter
from engine.targets.base import TargetSpec
from engine.targets.families import adapter
from engine.targets.families.dense import MlxTarget

GOLDEN = Path(__file__).parents[2] / "golden"
DRAFTERS = tuple(sorted(p.name for p in (GOLDEN / "drafters").iterdir()))
QWEN = tuple(n for n in DRAFTERS if "gemma4" not in n)


@dataclass(frozen=True)
class Facts:
    hidden_size: int
    num_layers: int
    vocab_size: int
    raw: dict[str, Any] = field(default_factory=dict)


class TableLender:
    """Embedding and head of a golden target, without its body."""

    def __init__(self, name: str) -> None:
        config = json.loads((GOLDEN / "targets" / name / "config.json").read_text())
        self.spec = Facts(config["hidden_size"], config["num_hidden_layers"], config["vocab_size"], config)
        self.table = mx.load(str(GOLDEN / "targets" / name / "model.safetensors"))["model.embed_tokens.weight"]

    def raw_embed(self, ids: mx.array) -> mx.array:
        return self.table[ids]

    def raw_logits(self, hidden: mx.array) -> mx.array:
        return hidden @ self.table.T


class Golden:
    """One golden drafter: its expected values, and the thing itself on a lender."""

    def __init__(self, name: str) -> None:
        self.folder = GOLDEN / "drafters" / name
        self.name = name
        golden = self.folder / "golden"
        self.tensors: dict[str, mx.array] = mx.load(str(golden / "expected.safetensors"))
        self.json: dict[str, Any] = json.loads((golden / "expected.json").read_text())
        self.target = self.json["target"]

    def __getitem__(self, key: str) -> np.ndarray:
        return np.array(self.tensors[key])

    def __contains__(self, key: str) -> bool:
        return key in self.tensors

    def load(self, target: Any = None, **kwargs: Any) -> Any:
        return load_drafter(self.folder, target or TableLender(self.target), bits=0, **kwargs)


@functools.cache
def golden_target(name: str) -> MlxTarget:
    """A golden target, ready to run; no stop ids."""
    model, config = load_model(GOLDEN / "targets" / name, lazy=True)
    spec = TargetSpec(
        model_type=config["model_type"],
        name=name,
        path="",
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        vocab_size=config["vocab_size"],
        stop_ids=frozenset(),
        context=4096,
        weight_bytes=0,
        kv_bytes_per_token=0,
        fingerprint=name,
        raw=config,
    )
    return adapter(config["model_type"])(model, spec)  # type: ignore[return-value]

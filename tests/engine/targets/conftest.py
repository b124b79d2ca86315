"""Loaded tiny models: the golden ones, and random ones of every family."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.utils import load_model

from engine.targets.base import TargetSpec
from engine.targets.families import adapter
from engine.targets.families.dense import MlxTarget
from tests.tools.make_tiny_models import make

GOLDEN = Path(__file__).parents[2] / "golden" / "targets"


def load(folder: Path) -> MlxTarget:
    """A target without tokenizer, as stored."""
    model, config = load_model(folder, lazy=True)
    text = {**config, **config.get("text_config", {})}
    experts = text.get("num_experts") or text.get("n_routed_experts")
    spec = TargetSpec(
        model_type=config["model_type"],
        name=folder.name,
        path=str(folder),
        hidden_size=text["hidden_size"],
        num_layers=len(model.layers),
        vocab_size=text["vocab_size"],
        stop_ids=frozenset(),
        context=4096,
        weight_bytes=0,
        kv_bytes_per_token=0,
        experts=(text["num_experts_per_tok"], experts) if experts else None,
        raw=config,
    )
    return adapter(config["model_type"])(model, spec)  # type: ignore[return-value]


Tiny = Callable[..., MlxTarget]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """tiny_folder(family, **options of make) -> a checkpoint folder, written once a session."""
    made: dict[str, Path] = {}

    def get(family: str, **options: Any) -> Path:
        key = json.dumps([family, options], sort_keys=True)
        if key not in made:
            made[key] = make(family, tmp_path_factory.mktemp(family) / family, **options)
        return made[key]

    return get


@pytest.fixture(scope="session")
def tiny(tiny_folder: Callable[..., Path]) -> Tiny:
    """tiny(family, **options of make) -> a target, loaded once a session."""
    loaded: dict[str, MlxTarget] = {}

    def get(family: str, **options: Any) -> MlxTarget:
        key = json.dumps([family, options], sort_keys=True)
        if key not in loaded:
            loaded[key] = load(tiny_folder(family, **options))
        return loaded[key]

    return get


def ids_of(*tokens: int) -> mx.array:
    return mx.array([list(tokens)], dtype=mx.int32)

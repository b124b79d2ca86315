"""Tiny random targets in memory, of any family and number format. Knows no check; the tests write the same models as
checkpoint folders."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from engine import backend
from engine.diagnostics.self_test.tiny_configs import FAMILIES, Config
from engine.targets.facts import describe
from engine.targets.families.dense import MlxTarget
from engine.targets.load import adapted

GROUP = 32
"""Group size of quantised weights: it divides every width of the tiny configurations."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The number format of a model's weights and activations."""

    name: str
    dtype: mx.Dtype
    bits: int = 0
    """Of its matrices; 0: as `dtype`."""


def precisions() -> tuple[Precision, ...]:
    """Those that people run. Weights of 4 bits are multiplied in the format that the engine chooses on this backend."""
    return (
        Precision("float32", mx.float32),
        Precision("bfloat16", mx.bfloat16),
        Precision("float16", mx.float16),
        Precision("4 bits", mx.float32 if backend.float32_only() else mx.bfloat16, 4),
    )


def tiny_target(
    family: str, precision: Precision, *, changes: Config | None = None, kv_bits: int = 0, seed: int = 0
) -> MlxTarget:
    """A target of a family with random weights in this very number format, whatever the engine would choose here.
    `changes` are merged into the (text) configuration."""
    config = own_copy(FAMILIES[family], changes)
    mx.random.seed(seed)
    model = build_model(config)
    randomize(model, config.get("text_config", {}).get("output_multiplier", 1.0))
    cast_to(model, precision.dtype)
    if precision.bits:
        config["quantization"] = quantize(model, precision.bits, GROUP)
    mx.eval(model.parameters())
    return adapted(model, describe(model, config, frozenset(), family, ""), kv_bits)


def own_copy(config: Config, changes: Config | None = None) -> Config:
    """A copy that the library's classes may edit, with `changes` in its text part."""
    made: Config = json.loads(json.dumps(config))
    made.get("text_config", made).update(changes or {})
    return made


def build_model(config: Config) -> nn.Module:
    """mlx-lm's model of a config, as it comes."""
    arch = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    return arch.Model(arch.ModelArgs.from_dict(own_copy(config)))


def randomize(model: nn.Module, output_multiplier: float = 1.0) -> None:
    """Make every parameter non-trivial, since defaults of 1 and 0 would hide a forgotten one; keep the recurrences
    stable.

    The output weights are scaled up so that logits have a standard deviation of 2 to 3: near-ties of the two best
    tokens are then rare, and a test may demand equal tokens where logits differ by rounding.
    """
    new: list[tuple[str, mx.array]] = []
    for name, value in _parameters(model):
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("A_log", "dt_bias", "D"):
            continue  # sensible by construction
        if not mx.issubdtype(value.dtype, mx.floating):
            continue
        if value.ndim == 1:  # norm weights, biases, layer scalars
            noise = 0.1 * mx.random.normal(value.shape)
            new.append((name, value + noise.astype(value.dtype)))
        elif not mx.any(value != 0).item():  # e.g. router weights start at zero
            fan_in = value.shape[-1]
            new.append((name, mx.random.normal(value.shape) / math.sqrt(fan_in)))
        elif name.endswith(("embed_tokens.weight", "embeddings.weight")):
            new.append((name, value * 3))
        elif name.endswith("lm_head.weight"):
            new.append((name, value * (4 / output_multiplier)))
    model.load_weights(new, strict=False)


def cast_to(model: nn.Module, dtype: mx.Dtype) -> None:
    """All floats but those that the family keeps as they are."""
    keep = getattr(model, "cast_predicate", lambda _: True)
    weights = [
        (k, v.astype(dtype) if keep(k) and mx.issubdtype(v.dtype, mx.floating) else v) for k, v in _parameters(model)
    ]
    model.load_weights(weights, strict=False)


def quantize(model: nn.Module, bits: int, group_size: int) -> Config:
    """Quantise what mlx-lm and mlx-vlm would: the text stack, not the vision one. Returns the config's entry."""
    rule = getattr(model, "quant_predicate", None)
    overrides: dict[str, Config] = {}

    def predicate(path: str, module: Any) -> Any:
        if not hasattr(module, "to_quantized") or "vision" in path:
            return False
        if module.weight.shape[-1] % group_size:
            return False
        wanted = rule(path, module) if rule else True
        if isinstance(wanted, dict):
            if module.weight.shape[-1] % wanted["group_size"]:
                wanted = cast("Config", wanted) | {"group_size": group_size}
            overrides[path] = cast("Config", wanted)
        return wanted

    nn.quantize(model, group_size, bits, class_predicate=predicate)
    return {"group_size": group_size, "bits": bits, **overrides}


def _parameters(model: nn.Module) -> list[tuple[str, mx.array]]:
    return cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))

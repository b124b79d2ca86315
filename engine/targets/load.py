"""From a folder or a GGUF file on disk to a target and its tokenizer. No network, no code from the checkpoint.

Must run on the model thread. Knows neither drafters nor the catalog.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from engine import backend
from engine.backend import rope
from engine.chat.tokenizer import Tokenizer, stop_ids
from engine.errors import LoadError, UnsupportedModel, WeightsDamaged, WeightsMissing
from engine.targets.base import Target, TargetSpec
from engine.targets.facts import check_quantization, check_token_ids, check_weights, describe, placed
from engine.targets.families import adapter
from engine.targets.families.dense import MlxTarget
from engine.targets.memory_estimate import Fit, estimate, fit, state_cost
from engine.weight_files.json_file import read_object


@dataclass(frozen=True, slots=True)
class Loaded:
    target: Target
    tokenizer: Tokenizer
    config: dict[str, Any]
    generation: dict[str, Any]
    """generation_config.json, or {}."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about what was changed to make it run here."""


def _endless(value: Any) -> bool:
    if isinstance(value, list):
        return any(_endless(v) for v in cast("list[Any]", value))
    return isinstance(value, float) and math.isinf(value)


def load_target(
    path: str | Path,
    *,
    name: str = "",
    overrides: Mapping[str, Any] | None = None,
    kv_bits: int = 0,
    context: int | None = None,
) -> Loaded:
    """Load the model at `path`, a folder in Hugging Face layout or a GGUF file.

    overrides: entries of the (text) config to replace (rope, window). kv_bits: 4, 6 or 8 quantises the keys and values
    of full attention. context: tokens of context that are wanted, by default all that the model was made for; fewer
    where the memory does not hold them, which is then said in `Loaded.notes`.

    Raises:
        LoadError: with one sentence that says what is wrong and what to do.
        MemoryShort: before anything is read, when the weights alone do not fit.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise WeightsMissing(f"There is no model at {path}.")
    room = None if path.is_file() else _room(path, overrides or {}, kv_bits, context)
    model, config, backend_tokenizer = _gguf(path) if path.is_file() else _folder(path, overrides or {})
    if backend.float32_only():
        model = _to_float32(model, config)
    mx.eval(model.parameters())
    generation = read_object(path / "generation_config.json")
    check_token_ids(generation, "generation_config.json")
    tokenizer = Tokenizer(backend_tokenizer)
    stops = stop_ids(backend_tokenizer, generation, config)
    spec = describe(model, config, stops, name or path.stem, str(path))
    spec = replace(spec, context=min(spec.context, context or spec.context, room.context if room else spec.context))
    notes = (room.note,) if room and room.note else ()
    return Loaded(adapted(model, spec, kv_bits), tokenizer, config, generation, notes)


def _room(folder: Path, overrides: Mapping[str, Any], kv_bits: int, context: int | None) -> Fit:
    """Whether a checkpoint fits this machine, from its config and file sizes."""
    from engine.hub import check_folder

    tensors = check_folder(folder)
    config = read_object(folder / "config.json")
    check_quantization(folder.name, config)
    check_weights(folder.name, config, tensors)
    return fit(estimate(folder, {**config, **placed(config, overrides)}, kv_bits=kv_bits), wanted=context)


def adapted(model: nn.Module, spec: TargetSpec, kv_bits: int = 0) -> MlxTarget:
    """The family's adapter around a model, with the facts that only it knows in its spec."""
    target = adapter(spec.model_type)(model, spec)
    target.ops = rope.share(model)
    if kv_bits:
        target.quantize_state(kv_bits)
    cost = state_cost(target)
    target.spec = replace(target.spec, kv_bytes_per_token=cost.per_token, vision=target.eye is not None)
    return target


def _gguf(path: Path) -> tuple[nn.Module, dict[str, Any], Any]:
    from mlx_lm.models import llama

    from engine.targets.gguf import load_gguf

    if path.suffix != ".gguf":
        raise UnsupportedModel(f"{path.name} is neither a model folder nor a .gguf file.")
    found = load_gguf(path)
    model = llama.Model(llama.ModelArgs.from_dict(found.config))
    quantization = found.config.get("quantization")
    if quantization:
        nn.quantize(
            model,
            group_size=quantization["group_size"],
            bits=quantization["bits"],
            class_predicate=lambda p, _m: f"{p}.scales" in found.weights,
        )
    try:
        model.load_weights(list(found.weights.items()))
    except ValueError as error:
        raise WeightsDamaged(f"{path.name} does not hold a complete llama model ({error}).") from error
    return model, found.config, found.tokenizer


def _folder(path: Path, overrides: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any], Any]:
    from mlx_lm.utils import load_model
    from transformers import AutoTokenizer

    stored = read_object(path / "config.json")
    endless = {name: value for name, value in stored.items() if _endless(value)}
    try:
        model, config = load_model(path, lazy=True, model_config={**endless, **placed(stored, overrides)})
    except LoadError:
        raise
    except FileNotFoundError as error:
        raise WeightsMissing(f"{path} has no weights: {error}.") from error
    except RuntimeError as error:
        raise WeightsDamaged(
            f"{path.name} has a damaged weight file: {_one_line(error)}. Download it again."
        ) from error
    except Exception as error:  # a family's code raises anything on what it did not foresee
        raise UnsupportedModel(f"{path.name} cannot be loaded: {_one_line(error)}.") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:  # transformers raises whatever its parsers raise
        raise LoadError(f"{path.name} has no usable tokenizer: {_one_line(error)}.") from error
    if len(vocabulary := tokenizer.get_vocab()) < 2:
        raise LoadError(
            f"{path.name} has no tokenizer ({len(vocabulary)} tokens): download the model again, with its "
            "tokenizer.json."
        )
    return model, cast("dict[str, Any]", config), tokenizer


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _to_float32(model: nn.Module, config: Mapping[str, Any]) -> nn.Module:
    """CPU policy: dense float32 when it fits in half the memory, else quantised weights with float32 scales."""
    from mlx_lm.utils import dequantize_model

    quantized = any(hasattr(m, "scales") for _, m in model.named_modules())
    if quantized and dense_bytes(model) < backend.memory_bytes() // 2 and _dequantizable(model):
        model = dequantize_model(model)
        model.eval()
    model.set_dtype(mx.float32)
    return model


def _dequantizable(model: nn.Module) -> bool:
    """Only layers that mlx itself quantises; a family's own packed layers stay as they are."""
    plain = (nn.QuantizedLinear, nn.QuantizedEmbedding)
    return all(isinstance(m, plain) or not hasattr(m, "scales") for _, m in model.named_modules())


def dense_bytes(model: nn.Module) -> int:
    """Bytes of the model with every quantised layer in float32."""
    total = 0
    for _, module in model.named_modules():
        scales = getattr(module, "scales", None)
        if scales is not None:
            total += 4 * scales.size * int(getattr(module, "group_size", 64))
    weights = cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))
    return total + sum(4 * w.size for _, w in weights if w.dtype != mx.uint32)

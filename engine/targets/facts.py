"""Facts about a model from its config and its arrays; what of a config is refused or replaced before anything loads.

Knows no tokenizer and no machine.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from engine.errors import UnsupportedModel
from engine.targets.base import TargetSpec

MAX_CONTEXT = 1 << 20
"""Configs without a length, or with a placeholder, are taken to end here."""


def describe(model: nn.Module, config: Mapping[str, Any], stops: frozenset[int], name: str, path: str) -> TargetSpec:
    """Facts about a loaded model, from its config and its arrays."""
    weights = cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))
    return replace(
        describe_config(config, name, path),
        num_layers=len(cast("Any", model).layers),
        stop_ids=stops,
        weight_bytes=sum(w.nbytes for _, w in weights),
        fingerprint=fingerprint(config, weights),
    )


def describe_config(config: Mapping[str, Any], name: str = "", path: str = "") -> TargetSpec:
    """Facts that stand in the config alone."""
    text: Mapping[str, Any] = {**config, **(config.get("text_config") or {})}
    experts = text.get("num_experts") or text.get("num_local_experts") or text.get("n_routed_experts")
    active = text.get("num_experts_per_tok") or text.get("top_k_experts")
    quantization = config.get("quantization") or {}
    stored = f"{quantization['bits']}-bit g{quantization.get('group_size', 64)}" if quantization.get("bits") else ""
    return TargetSpec(
        model_type=str(config.get("model_type", "")),
        name=name,
        path=path,
        hidden_size=int(text["hidden_size"]),
        num_layers=int(text.get("num_hidden_layers") or text.get("n_layer") or 0),
        vocab_size=int(text["vocab_size"]),
        stop_ids=frozenset(),
        context=min(int(text.get("max_position_embeddings") or MAX_CONTEXT), MAX_CONTEXT),
        weight_bytes=0,
        kv_bytes_per_token=0,
        experts=(int(active), int(experts)) if experts and active else None,
        quantization=stored or str(text.get("torch_dtype") or text.get("dtype") or ""),
        raw=dict(config),
    )


_SIZES = {
    "hidden_size": 1 << 17,
    "num_hidden_layers": 1 << 10,
    "n_layer": 1 << 10,
    "vocab_size": 1 << 24,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 14,
}
"""What a config counts, and more than any model has: a number beyond it is a mistake that would cost minutes."""
_HEAD_WIDTHS = ("head_dim", "attention_head_dim", "qk_nope_head_dim", "kv_channels")


def check_config(config: Mapping[str, Any]) -> None:
    """Refuse numbers that no model has, before anything is built from them.

    Raises:
        UnsupportedModel: with the first of them.
    """
    text = config.get("text_config")
    places = [config, *([cast("Mapping[str, Any]", text)] if isinstance(text, Mapping) else [])]
    for place in places:
        for name, most in _SIZES.items():
            value = place.get(name)
            if isinstance(value, list):
                continue  # a number a layer; families that have them count for themselves
            if value is not None and (type(value) is not int or not 1 <= value <= most):
                raise UnsupportedModel(_senseless(name, value, f"not a whole number from 1 to {most}"))
        length = place.get("max_position_embeddings")
        if length is not None and (type(length) not in (int, float) or not 1 <= length < math.inf):
            raise UnsupportedModel(_senseless("max_position_embeddings", length, "not a length"))
        check_token_ids(place)
    _check_heads({**config, **(places[-1])})


def check_token_ids(place: Mapping[str, Any], file: str = "config.json") -> None:
    """Raise UnsupportedModel where ids of special tokens are no numbers."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = place.get(name)
        ids = cast("list[Any]", value) if isinstance(value, list) else [value]
        if value is not None and not all(type(i) is int for i in ids):
            raise UnsupportedModel(_senseless(name, value, "not a token id or a list of them", file))


def _check_heads(text: Mapping[str, Any]) -> None:
    heads, groups, hidden = (text.get(n) for n in ("num_attention_heads", "num_key_value_heads", "hidden_size"))
    if type(heads) is int and type(groups) is int and heads % groups:
        raise UnsupportedModel(_senseless("num_attention_heads", heads, f"not a multiple of its {groups} key heads"))
    widthless = all(text.get(name) is None for name in _HEAD_WIDTHS)
    if widthless and type(heads) is int and type(hidden) is int and hidden % heads:
        raise UnsupportedModel(_senseless("hidden_size", hidden, f"not a multiple of its {heads} heads"))


def _senseless(name: str, value: object, reason: str, file: str = "config.json") -> str:
    return f"Its {file} gives {name} = {str(value)[:80]}, {reason}: correct it, or download the model again."


def check_weights(name: str, config: Mapping[str, Any], tensors: Iterable[str]) -> None:
    """Refuse weights that are not of the kind that the config says.

    Raises:
        UnsupportedModel: with the reason.
    """
    method = str((config.get("quantization_config") or {}).get("quant_method", ""))
    if method in ("awq", "gptq") and not any(tensor.endswith(".qweight") for tensor in tensors):
        raise UnsupportedModel(
            f"{name} says that it is packed by {method.upper()}, but its weights are not: take quantization_config out "
            "of its config.json, or download the model again."
        )


def fingerprint(config: Mapping[str, Any], weights: list[tuple[str, mx.array]]) -> str:
    """Changes with the architecture, the quantisation, the number format and (by samples) the weights."""
    digest = hashlib.sha256(json.dumps(dict(config), sort_keys=True, default=str).encode())
    for key, array in weights:
        digest.update(f"{key}{array.shape}{array.dtype}".encode())
    for _, array in weights[:: max(1, len(weights) // 16)]:
        sample = array.reshape(-1)[:64].astype(mx.float32)
        digest.update(bytes(memoryview(cast("Any", sample))))
    return digest.hexdigest()[:32]


def check_quantization(name: str, config: Mapping[str, Any]) -> None:
    """Refuse, by the config alone, weights that would run wrong or not at all.

    Raises:
        UnsupportedModel: with the reason.
    """
    for place in (config, config.get("text_config") or {}):
        quantization = place.get("quantization") or place.get("quantization_config") or {}
        if quantization.get("bits") == 1:
            raise UnsupportedModel(
                f"{name} has 1-bit weights. Released versions of MLX differ in whether and how they multiply those, so "
                "they are not run: choose the ternary (2-bit) pack of the same model."
            )


def placed(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides where the model reads them: beside the text model's other entries, and a rope base also where newer
    configs keep it."""
    text = config.get("text_config")
    entries = dict(overrides)
    rope = {**config, **(text if isinstance(text, Mapping) else {})}.get("rope_parameters")
    if "rope_theta" in entries and isinstance(rope, Mapping) and "rope_theta" in rope:
        entries.setdefault("rope_parameters", {**rope, "rope_theta": entries["rope_theta"]})
    return {"text_config": {**text, **entries}} if entries and isinstance(text, Mapping) else entries


def skeleton(config: Mapping[str, Any]) -> nn.Module:
    """The model of a config with weights that are never computed.

    Raises:
        UnsupportedModel: when mlx-lm does not know it.
    """
    from mlx_lm.utils import _get_classes  # the loader's own routing, which has no public name

    check_config(config)
    try:
        own = json.loads(json.dumps(dict(config)))  # the classes edit what they are given
        model_class, args_class = _get_classes(own)
        return model_class(args_class.from_dict(own))
    except Exception as error:  # a family's code raises anything on a config that it did not foresee
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UnsupportedModel(f"This model cannot be built: {reason}.") from error

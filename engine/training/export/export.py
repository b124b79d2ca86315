"""The export stage: trained parameters as files that this engine and other programs load.

A full vocabulary is written DeepSpec-native, a reduced one in the speculators layout (d2t offsets, tap ids counted from
the embedding). What training kept apart is multiplied out: the whitening into `fc`, the Markov maps into its tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from engine.paths import replacing, write_atomically
from engine.training.data.blocks import Ints
from engine.training.loop.step import Frozen
from engine.training.model import model

_QUANTISED = ("_proj.weight", "lm_head.weight", "markov_w1.weight", "markov_w2.weight")
"""`fc` stays in 16 bits: it carries the whitening, whose columns differ too much in size to share scales."""
GROUP = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """What a drafter was made for, as the files say it."""

    target: str
    layers: int
    architecture: str = ""
    context: int = 0


def tensors(shape: model.Shape, params: model.Params, frozen: Frozen, vocabulary: Ints) -> dict[str, mx.array]:
    """Every tensor by its published name, float32."""
    out = {
        "fc.weight": _fold(params["fc"], frozen.whiten),
        "hidden_norm.weight": params["hidden_norm"],
        "norm.weight": params["norm"],
    }
    for i, layer in enumerate(params["layers"]):
        for name, value in layer.items():
            part = "mlp." if name in ("gate_proj", "up_proj", "down_proj") else "self_attn."
            out[f"layers.{i}.{'' if name.endswith('layernorm') else part}{name}.weight"] = value
    if shape.rank:
        w1 = [model.markov_rows(params, frozen.embed[i : i + 4096]) for i in range(0, shape.vocab, 4096)]
        out["markov_head.markov_w1.weight"] = mx.concatenate(w1)
        out["markov_head.markov_w2.weight"] = frozen.head @ params["markov"]["out"]
    if shape.confidence:
        out["confidence_head.proj.weight"] = params["confidence"]["proj"]
        out["confidence_head.proj.bias"] = params["confidence"]["bias"]
    if shape.draft_vocab < shape.vocab:
        known = np.zeros(shape.vocab, bool)
        known[vocabulary] = True
        out["lm_head.weight"] = frozen.head
        out["d2t"] = mx.array(vocabulary - np.arange(len(vocabulary)))
        out["t2d"] = mx.array(known)
    mx.eval(out)
    return out


def _fold(fc: mx.array, maps: mx.array) -> mx.array:
    """fc over raw taps. The context is normed, so a common factor is free: one is chosen that suits 16 bits."""
    m, h, _ = maps.shape
    folded = mx.concatenate([fc[:, i * h : (i + 1) * h] @ maps[i].T for i in range(m)], axis=1)
    largest = float(np.abs(np.array(folded)).max())
    return folded * 2.0 ** np.floor(np.log2(1024.0 / max(largest, 1e-9)))


def config(shape: model.Shape, origin: Origin, bits: int) -> dict[str, Any]:
    """config.json of either packaging."""
    backbone = {
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_theta": shape.theta, "rope_type": "default"},
        "attention_bias": False,
        "vocab_size": shape.vocab,
        "max_position_embeddings": origin.context,
        "layer_types": ["full_attention"] * shape.layers,
    }
    block = {"block_size": shape.block, "mask_token_id": shape.mask_id, "tie_word_embeddings": False}
    heads: dict[str, Any] = {
        "markov_rank": shape.rank,
        "enable_confidence_head": shape.confidence,
        "confidence_head_with_markov": bool(shape.rank),
    }
    if shape.rank:
        heads["markov_head_type"] = "vanilla"
    quantized = {"quantization": {"group_size": GROUP, "bits": bits, "mode": "affine"}} if bits < 16 else {}
    if shape.draft_vocab == shape.vocab:
        return _native(shape, backbone, block, heads, origin) | quantized
    kind = "dspark" if shape.rank else "dflash"
    return {
        "architectures": ["DSparkDraftModel" if shape.rank else "DFlashDraftModel"],
        "speculators_model_type": kind,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": shape.drafts}],
            "verifier": {"name_or_path": origin.target, "architectures": [origin.architecture]},
        },
        "transformer_layer_config": backbone,
        "draft_vocab_size": shape.draft_vocab,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in shape.taps],
        "sample_from_anchor": shape.logits_start == 0,
        "num_target_layers": origin.layers,
        **block,
        **(heads if shape.rank else {}),
        **quantized,
    }  # fmt: skip


def _native(
    shape: model.Shape, backbone: Mapping[str, Any], block: Mapping[str, Any], heads: Mapping[str, Any], origin: Origin
) -> dict[str, Any]:
    common = {**backbone, **block, "num_target_layers": origin.layers}
    if shape.logits_start == 0:
        return {"architectures": ["Qwen3DSparkModel"], **common, **heads, "target_layer_ids": list(shape.taps)}
    nested = {"target_layer_ids": list(shape.taps), "mask_token_id": shape.mask_id, "block_size": shape.block}
    return {"architectures": ["DFlashDraftModel"], **common, "is_causal": False, "dflash_config": nested}


def write(
    folder: Path,
    shape: model.Shape,
    params: model.Params,
    frozen: Frozen,
    vocabulary: Ints,
    origin: Origin,
    *,
    bits: int = 16,
    card: str = "",
) -> int:
    """Write config.json, model.safetensors and the model card, each whole or not at all; returns the weights' bytes.

    bits: 16 is float16, which every program reads; 8 or 4 quantises the matrices in MLX's format.
    """
    arrays: dict[str, mx.array] = {}
    for name, value in tensors(shape, params, frozen, vocabulary).items():
        if not mx.issubdtype(value.dtype, mx.floating):
            arrays[name] = value
        elif bits < 16 and name.endswith(_QUANTISED) and value.shape[-1] % GROUP == 0:
            packed = mx.quantize(value.astype(mx.float16), group_size=GROUP, bits=bits)
            arrays |= dict(
                zip((name, name.replace("weight", "scales"), name.replace("weight", "biases")), packed, strict=True)
            )
        else:
            arrays[name] = value.astype(mx.float16)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.safetensors"
    with replacing(file, mode=0o666) as part, part.open("wb") as stream:
        mx.save_safetensors(stream, arrays, {"format": "mlx"})
    write_atomically(folder / "config.json", json.dumps(config(shape, origin, bits), indent=2) + "\n", mode=0o666)
    if card:
        write_atomically(folder / "README.md", card, mode=0o666)
    return file.stat().st_size

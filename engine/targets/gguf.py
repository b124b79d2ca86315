"""Reads a llama GGUF: configuration, weights under checkpoint names, and a tokenizer made from the file's own metadata.

Only byte-level BPE; anything else is refused with the reason. Builds no model: `engine/targets/families/dense.py` does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine import backend
from engine.errors import UnsupportedModel, WeightsDamaged, WeightsMissing
from engine.targets.facts import check_config
from engine.weight_files import gguf as weight_files
from engine.weight_files.gguf import GROUP


class Gguf(NamedTuple):
    """What a GGUF file holds."""

    config: dict[str, Any]
    """As a checkpoint's config.json, with `quantization` in mlx-lm's form when weights stay quantised."""
    weights: dict[str, mx.array]
    """`model.layers.N...`; quantised ones as weight, scales, biases."""
    tokenizer: PreTrainedTokenizerFast


_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight)")

_CONTROL, _USER_DEFINED = 3, 4
"""Token types of `tokenizer.ggml.token_type` that are never merged from text."""
_TURN_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>")


def load_gguf(path: str | Path) -> Gguf:
    """Read a file; weights are dense float32 where the backend computes in float32, and as stored elsewhere.

    Raises:
        WeightsMissing: no such file.
        WeightsDamaged: truncated, not a GGUF, or not readable.
        UnsupportedModel: another architecture, tokenizer or quantisation.
    """
    file = Path(path)
    if not file.is_file():
        raise WeightsMissing(f"There is no file {file}.")
    stored = weight_files.Gguf(file)
    architecture = stored.metadata.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModel(f"{file.name} is a {architecture} GGUF; only llama GGUFs are read. Use its MLX version.")
    if "rope_freqs.weight" in stored.tensors:
        raise UnsupportedModel(
            f"{file.name} scales its rotary frequencies, which is not read from GGUF. Use its MLX version."
        )
    try:
        config = _config(stored.metadata, "output.weight" not in stored.tensors)
        tokenizer = _tokenizer(stored.metadata, file.name)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise WeightsDamaged(
            f"{file.name} lacks what a llama model needs ({type(error).__name__}: {error}). Fetch it again."
        ) from error
    check_config(config)
    return Gguf(config, _numbers(_weights(stored), config), tokenizer)


def _weights(stored: weight_files.Gguf) -> dict[str, mx.array]:
    """Under checkpoint names; what MLX multiplies as it is stored as weight, scales and biases."""
    weights: dict[str, mx.array] = {}
    for name in stored.tensors:
        ours = _rename(name, stored.path.name)
        packed = stored.packed(name)
        if packed is None:
            weights[ours] = stored.dense(name)
        else:
            stem = ours.removesuffix(".weight")
            weights |= {ours: packed.weight, f"{stem}.scales": packed.scales, f"{stem}.biases": packed.biases}
    return weights


def _rename(name: str, file: str) -> str:
    found = _NAME.fullmatch(name)
    table = _TOP if found and found["layer"] is None else _LAYER
    if not found or found["part"] not in table:
        raise UnsupportedModel(f"{file} holds a tensor {name} that a llama model does not have.")
    layer = "" if found["layer"] is None else f"model.layers.{found['layer']}."
    return f"{layer}{table[found['part']]}.{found['kind']}"


def _config(meta: dict[str, Any], tied: bool) -> dict[str, Any]:
    hidden, heads = int(meta["llama.embedding_length"]), int(meta["llama.attention.head_count"])
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    stops = [int(meta["tokenizer.ggml.eos_token_id"])]
    stops += [i for i, token in enumerate(tokens) if token in _TURN_ENDS and i not in stops]
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(meta.get("llama.rope.dimension_count", hidden // heads)),
        "rms_norm_eps": round(float(meta["llama.attention.layer_norm_rms_epsilon"]), 12),
        "vocab_size": len(tokens),
        "rope_theta": float(meta.get("llama.rope.freq_base", 10000.0)),
        # GGUF permutes the rows of Q and K for rotary pairs that lie side by side.
        "rope_traditional": True,
        "max_position_embeddings": int(meta["llama.context_length"]),
        "tie_word_embeddings": tied,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": stops,
        "name": meta.get("general.name"),
    }


def _numbers(weights: dict[str, mx.array], config: dict[str, Any]) -> dict[str, mx.array]:
    """Dense float32, or the stored quantisation with `config["quantization"]` filled in."""
    names = [name.removesuffix(".scales") for name in weights if name.endswith(".scales")]
    bits = {
        name: weights[f"{name}.weight"].shape[-1] * 32 // (weights[f"{name}.scales"].shape[-1] * GROUP)
        for name in names
    }
    if backend.float32_only():
        dense = {name: array for name, array in weights.items() if name.rsplit(".", 1)[0] not in bits}
        for name, width in bits.items():
            scales, biases = (weights[f"{name}.{kind}"].astype(mx.float32) for kind in ("scales", "biases"))
            dense[f"{name}.weight"] = mx.dequantize(weights[f"{name}.weight"], scales, biases, GROUP, width)
        return {name: array.astype(mx.float32) for name, array in dense.items()}
    if bits:
        common = max(set(bits.values()), key=list(bits.values()).count)
        odd = {name: {"group_size": GROUP, "bits": width} for name, width in bits.items() if width != common}
        config["quantization"] = {"group_size": GROUP, "bits": common, **odd}
    # Norms are stored in float32, which would lift every activation to it.
    return {name: a.astype(mx.float16) if a.dtype == mx.float32 else a for name, a in weights.items()}


def _tokenizer(meta: dict[str, Any], file: str) -> PreTrainedTokenizerFast:
    if meta.get("tokenizer.ggml.model") != "gpt2":
        kind = meta.get("tokenizer.ggml.model", "no")
        raise UnsupportedModel(
            f"{file} has a {kind} tokenizer; from GGUF only byte-level BPE is read. Use its MLX version."
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ", 1)) for pair in meta["tokenizer.ggml.merges"]]
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))  # pyright: ignore[reportArgumentType]
    core.pre_tokenizer = _pre_tokenizer(str(meta.get("tokenizer.ggml.pre", "gpt-2")), file)  # pyright: ignore[reportAttributeAccessIssue]
    core.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    types: list[int] = meta.get("tokenizer.ggml.token_type", [])
    special = [AddedToken(tokens[i], special=True, normalized=False) for i, t in enumerate(types) if t == _CONTROL]
    added = [AddedToken(tokens[i], special=False, normalized=False) for i, t in enumerate(types) if t == _USER_DEFINED]
    core.add_special_tokens(special)
    core.add_tokens(added)

    def named(role: str) -> str | None:
        index = meta.get(f"tokenizer.ggml.{role}_token_id")
        return None if index is None else tokens[int(index)]

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=named("bos"),
        eos_token=named("eos"),
        unk_token=named("unknown"),
        pad_token=named("padding"),
        model_max_length=int(meta["llama.context_length"]),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = meta.get("tokenizer.chat_template")
    return tokenizer


def _pre_tokenizer(name: str, file: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut before merging; the names are llama.cpp's."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    raise UnsupportedModel(f"{file} cuts text the {name} way, which is not read from GGUF. Use its MLX version.")

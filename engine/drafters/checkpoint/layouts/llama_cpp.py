"""llama.cpp's own GGUF drafters: DFlash, DFlash 2 and DSpark under one architecture; their tensors tell which."""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig, LayerRule, Rope, Selector
from engine.drafters.checkpoint.fields import Fields, tap_ids
from engine.drafters.checkpoint.layouts import prism, qwen3_body
from engine.errors import DrafterRefused

NAME = "llama.cpp"
_PREFIX = "dflash."
_GLOBAL = {
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "norm.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
    "selector_hidden.weight": "candidate_selector.hidden_projection.weight",
    "selector_predecessor.weight": "candidate_selector.predecessor_codebook",
    "selector_successor.weight": "candidate_selector.successor_codebook",
}
_LAYER = {
    "attn_sinks.weight": "self_attn.attention_sink_bias",
    "attn_conv_base": "attention_conv.base_kernel",
    "attn_conv_base.weight": "attention_conv.base_kernel",
    "attn_conv_proj.weight": "attention_conv.kernel_projection.weight",
    "ffn_conv_base": "mlp_conv.base_kernel",
    "ffn_conv_base.weight": "mlp_conv.base_kernel",
    "ffn_conv_proj.weight": "mlp_conv.kernel_projection.weight",
}


def rename(name: str) -> str:
    """llama.cpp's names to DeepSpec's."""
    found = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
    if found and found[2] in _LAYER:
        return f"layers.{found[1]}.{_LAYER[found[2]]}"
    return _GLOBAL[name] if name in _GLOBAL else prism.rename(name)


def config_of(metadata: dict[str, Any], tensors: dict[str, mx.array]) -> DrafterConfig:
    """Of the metadata, and of the tensors under DeepSpec's names."""
    own = {k.removeprefix(_PREFIX): v for k, v in metadata.items() if k.startswith(_PREFIX)}
    fields = Fields(own, {"mask_token_id": metadata.get("tokenizer.ggml.mask_token_id")})
    if own.get("hyper_connection.count"):
        raise DrafterRefused("This GGUF is a DeepSeek V4 drafter, which is not supported; choose another one.")
    markov = tensors.get("markov_head.markov_w1.weight")
    hidden, heads = fields.need("embedding_length"), fields.need("attention.head_count")
    head_dim = int(fields.get("attention.key_length") or (hidden // heads if heads else 0))
    d2t = tensors.get("d2t")
    settings: dict[str, Any] = {
        "hidden_size": hidden,
        "intermediate_size": fields.need("feed_forward_length"),
        "num_heads": heads,
        "num_kv_heads": fields.need("attention.head_count_kv", default=heads),
        "vocab_size": _words(metadata, tensors, fields),
        "block_size": fields.need("block_size"),
        "mask_token_id": fields.need("mask_token_id"),
        # Id k names the input of layer k, hence the output of layer k - 1.
        "taps": tap_ids(fields, "target_layers", shift=-1),
        "layers": _rules(fields),
    }
    fields.check(NAME)
    return DrafterConfig(
        packaging=NAME,
        kind="dflash" if markov is None else "dspark",
        head_dim=head_dim,
        rms_norm_eps=float(fields.get("attention.layer_norm_rms_epsilon", default=1e-6)),
        logits_start=qwen3_body.anchor_start(fields, 1 if markov is None else 0),
        rope=Rope(float(fields.get("rope.freq_base", default=1e6)), head_dim),
        draft_vocab_size=None if d2t is None else d2t.shape[0],
        markov_rank=0 if markov is None else markov.shape[-1],
        embed_scale=fields.get("embedding_scale"),
        output_multiplier=float(fields.get("logit_scale") or 1.0),
        softcap=fields.get("final_logit_softcapping") or None,
        selector=_selector(fields) if "candidate_selector.hidden_projection.weight" in tensors else None,
        **settings,
    )


def _words(metadata: dict[str, Any], tensors: dict[str, mx.array], fields: Fields) -> int:
    """Words of the target that the file was made for."""
    for name in ("embed_tokens.weight", "markov_head.markov_w1.weight", "candidate_selector.predecessor_codebook"):
        if name in tensors:
            return tensors[name].shape[0]
    tokens = metadata.get("tokenizer.ggml.tokens")
    return fields.need("vocab_size", default=len(tokens) if isinstance(tokens, list) else None)


def _rules(fields: Fields) -> tuple[LayerRule, ...]:
    count, window = fields.layers("block_count"), fields.get("attention.sliding_window")
    causal = fields.flag("attention.causal")
    pattern = fields.get("attention.sliding_window_pattern", default=[bool(window)] * count)
    return tuple(LayerRule(int(window) if window and slides else None, causal) for slides in pattern[:count])


def _selector(fields: Fields) -> Selector:
    return Selector(
        rank=fields.need("selector_rank"),
        top_k=fields.need("selector_top_k"),
        conv_group=fields.need("conv_group_size"),
        conv_kernel=fields.need("conv_kernel_size"),
    )

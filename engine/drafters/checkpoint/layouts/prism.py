"""PrismML's GGUF drafters: llama.cpp names, doubly prefixed keys, log-SNR conditioning."""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig, LayerRule, Rope
from engine.drafters.checkpoint.fields import Fields, tap_ids
from engine.drafters.checkpoint.layouts import qwen3_body

NAME = "GGUF"
_PREFIX = "dspark."
_GLOBAL = {
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "norm.weight",
    "dspark.fc.weight": "fc.weight",
    "dspark.hidden_norm.weight": "hidden_norm.weight",
    "dspark.markov_head_a.weight": "markov_head.markov_w1.weight",
    "dspark.markov_head_b.weight": "markov_head.markov_w2.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def config_of(metadata: dict[str, Any], tensors: dict[str, mx.array]) -> DrafterConfig:
    outer = {k.removeprefix(_PREFIX): v for k, v in metadata.items() if k.startswith(_PREFIX)}
    inner = {k.removeprefix(_PREFIX): v for k, v in outer.items() if k.startswith(_PREFIX)}
    fields = Fields(inner, outer)
    hidden = fields.need("embedding_length")
    heads = fields.need("attention.head_count")
    kv_heads = fields.need("attention.head_count_kv", default=heads)
    head_dim = int(fields.get("attention.key_length") or (hidden // heads if heads else 0))
    inter = fields.need("feed_forward_length")
    layers = fields.layers("block_count")
    block_size = fields.need("block_size")
    mask = fields.need("mask_token_id")
    taps = tap_ids(fields, "target_layers", "target_layer_ids")
    if "embed_tokens.weight" not in tensors:
        fields.missing.append("token_embd")
    fields.check(NAME)
    return DrafterConfig(
        packaging=NAME,
        kind="dspark",
        hidden_size=hidden,
        intermediate_size=inter,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=float(fields.get("attention.layer_norm_rms_epsilon", default=1e-6)),
        vocab_size=tensors["embed_tokens.weight"].shape[0],
        block_size=block_size,
        logits_start=0,
        mask_token_id=mask,
        taps=taps,
        layers=(LayerRule(),) * layers,
        rope=Rope(float(fields.get("rope.freq_base", default=1e6)), head_dim),
        markov_rank=int(fields.get("markov_rank", default=0)),
        confidence_with_markov=fields.flag("confidence_head_with_markov", default=True),
        log_snr=qwen3_body.log_snr(fields),
    )


def rename(name: str) -> str:
    """llama.cpp's names to DeepSpec's."""
    if name in _GLOBAL:
        return _GLOBAL[name]
    if match := re.fullmatch(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)", name):
        return f"layers.{match[1]}.{_LAYER.get(match[2], match[2])}.{match[3]}"
    if match := re.fullmatch(r"dspark\.confidence_head\.(weight|bias)", name):
        return f"confidence_head.proj.{match[1]}"
    if match := re.fullmatch(r"dspark\.log_snr_fc([12])\.(weight|bias)", name):
        return f"log_snr_embed.fc{match[1]}.{match[2]}"
    return name

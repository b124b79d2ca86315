"""Configurations of tiny random models, for the self-test and the tests: one per family and per kind of layer state.

Widths are multiples of 32 and recurrent heads have 32 values, so that the kernels which Apple machines choose accept
the shapes too. Sliding windows are 16 tokens: a prompt of 20 already passes the edge.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

VOCAB = 320
"""Rows of the embedding; the tokenizer fills VOCAB_BPE + len(SPECIAL) of them."""
VOCAB_BPE = 288
WINDOW = 16

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    # qwen3.5 vision
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
    # muse glimmer vision and channels
    "<|image_start|>", "<|image_end|>", "<|patch|>", "<|video|>",
    "<|message|>", "<|eom|>",
    # gemma 4 media
    "<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>",
    # draft block mask, for drafters that predict masked positions
    "<|mask|>",
]  # fmt: skip


def token_id(name: str) -> int:
    return VOCAB_BPE + SPECIAL.index(name)


EOS = {
    "bos_token_id": token_id("<|endoftext|>"),
    "eos_token_id": token_id("<|im_end|>"),
    "pad_token_id": token_id("<|endoftext|>"),
}
DENSE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
}

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"],
    **DENSE, **EOS, "rope_theta": 10000.0, "tie_word_embeddings": True,
}  # fmt: skip

QWEN3 = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    **DENSE, **EOS, "rope_theta": 1e6, "tie_word_embeddings": False,
}  # fmt: skip

QWEN3_MOE = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
    **DENSE, **EOS, "rope_theta": 1e6, "tie_word_embeddings": False,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip

# E2B/E4B style: per-layer inputs, the last two layers share keys and values,
# so make_cache() returns two entries for four layers.
GEMMA4_TEXT = {
    "model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"],
    **DENSE, **EOS,
    "num_key_value_heads": 1, "global_head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": VOCAB, "sliding_window": WINDOW,
    "final_logit_softcapping": 30.0, "use_double_wide_mlp": True,
    "tie_word_embeddings": True,
    # Must be given: for the global layers mlx-lm defaults to a partial factor of
    # 0.25 and mlx-vlm to 1.0, so without it the two disagree about the logits.
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional", "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip

# 12B/31B style: no per-layer inputs, no shared layers, global layers use K as V.
GEMMA4_DENSE_TEXT = GEMMA4_TEXT | {
    "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
    "num_key_value_heads": 2, "num_global_key_value_heads": 1,
    "attention_k_eq_v": True, "use_double_wide_mlp": False,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}  # fmt: skip

QWEN3_5_TEXT = {
    "model_type": "qwen3_5_text",
    **DENSE, **EOS,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "tie_word_embeddings": False,
    # 32 * 0.25 = 8 rotary dims = 4 frequencies, split over time, height, width
    "rope_parameters": {
        "type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True,
        "rope_theta": 1e5, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip

QWEN3_5_MOE_TEXT = QWEN3_5_TEXT | {
    "model_type": "qwen3_5_moe_text",
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64, "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}  # fmt: skip


QWEN3_NEXT = {
    **QWEN3_5_TEXT, "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"],
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 1e5,
    "partial_rotary_factor": 0.25,
}  # fmt: skip


def wrapped(model_type: str, text: Config) -> Config:
    """As checkpoints that also see carry their text model."""
    return {"model_type": model_type, **EOS, "vocab_size": VOCAB, "text_config": text}


# One of every block: Mamba-2, MoE, attention, Mamba-2, MLP. Only M and * blocks
# have a cache, so make_cache() returns three entries for five layers.
NEMOTRON_H = {
    "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
    **{k: v for k, v in DENSE.items() if k != "rms_norm_eps"}, **EOS,
    "num_hidden_layers": 5, "hybrid_override_pattern": ["M", "E", "*", "M", "-"],
    "attention_bias": False, "mlp_bias": False, "use_bias": False,
    "mamba_proj_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5,
    "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 32,
    "conv_kernel": 4, "n_groups": 2, "time_step_limit": [0.0, 1e6],
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 64,
    "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 1.0, "tie_word_embeddings": False,
}  # fmt: skip

GRANITE_HYBRID = {
    "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], **DENSE, **EOS,
    "layer_types": ["mamba", "attention", "mamba", "mamba"], "attention_bias": False, "embedding_multiplier": 2.0,
    "attention_multiplier": 0.25, "logits_scaling": 0.5, "residual_multiplier": 0.5, "tie_word_embeddings": True,
    "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64, "mamba_n_heads": 4,
    "mamba_d_head": 32, "mamba_d_state": 32, "mamba_d_conv": 4, "mamba_n_groups": 2, "mamba_conv_bias": True,
    "mamba_proj_bias": False, "time_step_limit": [0.0, 1e6], "rope_theta": 1e4, "position_embedding_type": "rope",
}  # fmt: skip

LFM2 = {
    "model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"],
    **{k: v for k, v in DENSE.items() if k != "rms_norm_eps"}, **EOS,
    "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3,
    "block_dim": 64, "block_ff_dim": 192, "block_multiple_of": 32,
    "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True,
    "rope_theta": 1e6, "layer_types": ["conv", "full_attention"] * 2,
}  # fmt: skip

# A whole number of [local, local, local, global] groups: mlx-lm fills missing
# layer_types from the front, mlx-vlm from the back. Given here anyway.
MUSE_GLIMMER_TEXT = {
    "model_type": "muse_glimmer_text", **DENSE, **EOS,
    "rms_norm_eps": 1e-5, "post_norm_eps": 1e-8, "sliding_window": WINDOW,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "layer_rope_theta": [500000.0] * 3 + [0],
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "qk_scale_factor": 3.87, "output_multiplier": 0.196,
    "final_logit_softcapping": 20.0, "tie_word_embeddings": False,
}  # fmt: skip

LFM2_MOE = {
    **LFM2, "model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"], "intermediate_size": 128,
    "moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "use_expert_bias": True, "num_dense_layers": 1,
}  # fmt: skip

FAMILIES: dict[str, Config] = {
    "llama": LLAMA,
    "qwen3_moe": QWEN3_MOE,
    "gemma4_text": GEMMA4_TEXT,
    "gemma4_dense": GEMMA4_DENSE_TEXT,
    "qwen3_5": wrapped("qwen3_5", QWEN3_5_TEXT),
    "qwen3_5_moe": wrapped("qwen3_5_moe", QWEN3_5_MOE_TEXT),
    "qwen3_next": QWEN3_NEXT,
    "nemotron_h": NEMOTRON_H,
    "granitemoehybrid": GRANITE_HYBRID,
    "lfm2": LFM2,
    "lfm2_moe": LFM2_MOE,
    "muse_glimmer": wrapped("muse_glimmer", MUSE_GLIMMER_TEXT),
}
"""One a line of docs/families.md."""

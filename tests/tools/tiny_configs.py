"""Configurations of the tiny random models that the tests run: one per family and per kind of layer state.

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


def gemma4_vlm(text: Config) -> Config:
    return {
        "model_type": "gemma4",
        "architectures": ["Gemma4ForConditionalGeneration"],
        **EOS,
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "image_token_id": token_id("<|image|>"),
        "boi_token_id": token_id("<|image>"),
        "eoi_token_id": token_id("<image|>"),
        "audio_token_id": token_id("<|audio|>"),
        "boa_token_id": token_id("<|audio>"),
        "eoa_token_id": token_id("<audio|>"),
        "vision_soft_tokens_per_image": 4,
        "text_config": text,
        "vision_config": {
            "model_type": "gemma4_vision", "hidden_size": 32,
            "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
            "global_head_dim": 16, "patch_size": 4,
            "position_embedding_size": 64, "pooling_kernel_size": 2,
            "default_output_length": 4,
        },
        "audio_config": None,
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


def qwen3_5_vlm(model_type: str, text: Config) -> Config:
    return {
        "model_type": model_type,
        "architectures": [
            "Qwen3_5MoeForConditionalGeneration"
            if "moe" in model_type
            else "Qwen3_5ForConditionalGeneration"
        ],
        **EOS,
        "vocab_size": VOCAB,
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
        "text_config": text,
        "vision_config": {
            "model_type": model_type, "depth": 2, "hidden_size": 32,
            "intermediate_size": 64, "out_hidden_size": text["hidden_size"],
            "num_heads": 2, "patch_size": 4, "spatial_patch_size": 4,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
            "num_position_embeddings": 64, "deepstack_visual_indexes": [],
            "fullatt_block_indexes": [1],
        },
    }  # fmt: skip


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
MUSE_GLIMMER = {
    "model_type": "muse_glimmer",
    "architectures": ["MuseGlimmerForConditionalGeneration"],
    **EOS,
    "image_token_id": token_id("<|patch|>"),
    "video_token_id": token_id("<|video|>"),
    "out_hidden_size": 128,  # vision hidden 32 * merge_size ** 2
    "projector_hidden_size": 64,
    "text_config": {
        "model_type": "muse_glimmer_text", **DENSE, **EOS,
        "rms_norm_eps": 1e-5, "post_norm_eps": 1e-8, "sliding_window": WINDOW,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "layer_rope_theta": [500000.0] * 3 + [0],
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
        "qk_scale_factor": 3.87, "output_multiplier": 0.196,
        "final_logit_softcapping": 20.0, "tie_word_embeddings": False,
    },
    "vision_config": {
        "model_type": "muse_glimmer_vision", "patch_size": 4, "patch_temporal": 2,
        "merge_size": 2, "pos_emb_height": 8, "pos_emb_width": 8,
        "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "layer_types": ["window_attention", "full_attention"],
    },
}  # fmt: skip

# "Bonsai 27B" is a qwen3_5 whose linear layers are 2-bit affine packs with
# group size 128, so every input width must be a multiple of 128.
BONSAI_TEXT = QWEN3_5_TEXT | {
    "hidden_size": 128, "intermediate_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip

# The Hadamard pack also rotates inputs in blocks of at least 512.
HADAMARD_TEXT = QWEN3_5_TEXT | {
    "hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 1,
    "linear_num_value_heads": 16, "linear_num_key_heads": 2,
}  # fmt: skip

PATCHES = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2}
QWEN_PROCESSOR = {
    "image_processor": {
        **PATCHES, "min_pixels": 64, "max_pixels": 4096,
        "size": {"shortest_edge": 64, "longest_edge": 4096},
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }
}  # fmt: skip
GEMMA_PROCESSOR = {
    "image_processor": {
        "patch_size": 4, "max_soft_tokens": 4, "pooling_kernel_size": 2
    },
    "image_seq_length": 4,
}  # fmt: skip
MUSE_PROCESSOR = {"image_processor": {**PATCHES, "max_image_tokens": 64}}

LFM2_MOE = {
    **LFM2, "model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"], "intermediate_size": 128,
    "moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "use_expert_bias": True, "num_dense_layers": 1,
}  # fmt: skip

TEXT: dict[str, Config] = {
    "llama": LLAMA,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "gemma4_text": GEMMA4_TEXT,
    "gemma4": gemma4_vlm(GEMMA4_TEXT),
    "gemma4_dense": gemma4_vlm(GEMMA4_DENSE_TEXT),
    "qwen3_5": qwen3_5_vlm("qwen3_5", QWEN3_5_TEXT),
    "qwen3_5_moe": qwen3_5_vlm("qwen3_5_moe", QWEN3_5_MOE_TEXT),
    "qwen3_next": QWEN3_NEXT,
    "nemotron_h": NEMOTRON_H,
    "granitemoehybrid": GRANITE_HYBRID,
    "lfm2": LFM2,
    "lfm2_moe": LFM2_MOE,
    "muse_glimmer": MUSE_GLIMMER,
    "bonsai_ternary": qwen3_5_vlm("qwen3_5", BONSAI_TEXT),
    "bonsai_hadamard": qwen3_5_vlm("qwen3_5", HADAMARD_TEXT),
}
"""Written with mlx-lm's classes: the text part only."""

VISION: dict[str, tuple[Config, Config]] = {
    "gemma4": (gemma4_vlm(GEMMA4_TEXT), GEMMA_PROCESSOR),
    "qwen3_5": (qwen3_5_vlm("qwen3_5", QWEN3_5_TEXT), QWEN_PROCESSOR),
    "muse_glimmer": (MUSE_GLIMMER, MUSE_PROCESSOR),
}
"""Written with mlx-vlm's classes: text and vision tower, and the processor's configuration."""

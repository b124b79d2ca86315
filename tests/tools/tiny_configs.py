"""What only tests need beside the self-test's tiny configurations: vision towers, their processors, packed weights."""

from __future__ import annotations

from engine.diagnostics.self_test.tiny_configs import (
    EOS,
    FAMILIES,
    GEMMA4_DENSE_TEXT,
    GEMMA4_TEXT,
    MUSE_GLIMMER_TEXT,
    QWEN3,
    QWEN3_5_MOE_TEXT,
    QWEN3_5_TEXT,
    VOCAB,
    Config,
    token_id,
)


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


MUSE_GLIMMER = {
    "model_type": "muse_glimmer",
    "architectures": ["MuseGlimmerForConditionalGeneration"],
    **EOS,
    "image_token_id": token_id("<|patch|>"),
    "video_token_id": token_id("<|video|>"),
    "out_hidden_size": 128,  # vision hidden 32 * merge_size ** 2
    "projector_hidden_size": 64,
    "text_config": MUSE_GLIMMER_TEXT,
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

TEXT: dict[str, Config] = {
    **FAMILIES,
    "qwen3": QWEN3,
    "gemma4": gemma4_vlm(GEMMA4_TEXT),
    "gemma4_dense": gemma4_vlm(GEMMA4_DENSE_TEXT),
    "qwen3_5": qwen3_5_vlm("qwen3_5", QWEN3_5_TEXT),
    "qwen3_5_moe": qwen3_5_vlm("qwen3_5_moe", QWEN3_5_MOE_TEXT),
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

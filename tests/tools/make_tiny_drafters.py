"""Write random DSpark and DFlash drafters for a tiny target: they propose, and are nearly always refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mlx.core as mx

HEAD_DIM, HEADS, KV_HEADS, RANK = 16, 4, 2, 8


def make_drafter(
    kind: str, out: Path, *, hidden: int, layers: int, vocab: int, mask_id: int, block: int = 7, seed: int = 0
) -> Path:
    """kind: `dspark` (gated Markov and confidence heads) or `dflash`; embedding and head are the target's."""
    taps = [0, layers // 2, layers - 1]
    width = 2 * hidden
    config: dict[str, Any] = {
        "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "rms_norm_eps": 1e-6,
        "vocab_size": vocab, "max_position_embeddings": 4096, "hidden_act": "silu", "attention_bias": False,
        "layer_types": ["full_attention"], "rope_theta": 10000.0, "num_target_layers": layers, "torch_dtype": "float32",
    }  # fmt: skip
    shapes = {
        "fc.weight": (hidden, len(taps) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "layers.0.input_layernorm.weight": (hidden,),
        "layers.0.post_attention_layernorm.weight": (hidden,),
        "layers.0.self_attn.q_proj.weight": (HEADS * HEAD_DIM, hidden),
        "layers.0.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, hidden),
        "layers.0.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, hidden),
        "layers.0.self_attn.o_proj.weight": (hidden, HEADS * HEAD_DIM),
        "layers.0.self_attn.q_norm.weight": (HEAD_DIM,),
        "layers.0.self_attn.k_norm.weight": (HEAD_DIM,),
        "layers.0.mlp.gate_proj.weight": (width, hidden),
        "layers.0.mlp.up_proj.weight": (width, hidden),
        "layers.0.mlp.down_proj.weight": (hidden, width),
    }
    if kind == "dspark":
        config |= {
            "architectures": ["Qwen3DSparkModel"], "block_size": block, "target_layer_ids": taps,
            "mask_token_id": mask_id, "markov_head_type": "gated", "markov_rank": RANK,
            "enable_confidence_head": True, "confidence_head_with_markov": True, "tie_word_embeddings": False,
        }  # fmt: skip
        shapes |= {
            "markov_head.markov_w1.weight": (vocab, RANK),
            "markov_head.markov_w2.weight": (vocab, RANK),
            "markov_head.gate_proj.weight": (RANK, hidden + RANK),
            "markov_head.gate_proj.bias": (RANK,),
            "confidence_head.proj.weight": (1, hidden + RANK),
            "confidence_head.proj.bias": (1,),
        }
    else:
        config |= {
            "architectures": ["DFlashDraftModel"], "block_size": block + 1, "tie_word_embeddings": True,
            "dflash_config": {"mask_token_id": mask_id, "target_layer_ids": taps},
        }  # fmt: skip
    mx.random.seed(seed)
    weights = {k: mx.random.normal(s) / math.sqrt(s[-1]) + (1.0 if len(s) == 1 else 0.0) for k, s in shapes.items()}
    out.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return out

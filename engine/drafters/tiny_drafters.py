"""Tiny random drafters of every kind for a tiny target: they propose, and are nearly always refused.

Configs and tensors are those of a checkpoint, and go through the same reading. Knows no check and writes no file; the
tests write the same drafters as folders.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.drafters.base import LearnedDrafter
from engine.drafters.checkpoint import Checkpoint
from engine.drafters.checkpoint.layouts import detect
from engine.drafters.load import build
from engine.targets.base import Target

HEAD_DIM, HEADS, KV_HEADS, RANK, REDUCED = 16, 4, 2, 8, 96
WINDOW = 16

KINDS = ("dspark", "dspark-vanilla", "dspark-rnn", "dspark-reduced", "dflash", "dflash-window", "dflash2")
"""`dspark` has a gated Markov head; `dspark-reduced` speaks a vocabulary of its own; `dflash-window` slides."""

Shapes = dict[str, tuple[int, ...]]


def tiny_drafter(kind: str, target: Target, mask_id: int, dtype: mx.Dtype) -> LearnedDrafter:
    """A drafter of one of KINDS that computes in `dtype`; embedding and head are the target's."""
    spec = target.spec
    config, tensors = drafter_parts(
        kind, hidden=spec.hidden_size, layers=spec.num_layers, vocab=spec.vocab_size, mask_id=mask_id
    )
    layout = detect(config)
    named = {layout.rename(name): value for name, value in tensors.items() if not layout.dropped(name)}
    return build(Checkpoint(layout.read(config), named, Path()), target, name=kind, dtype=dtype)


def drafter_parts(
    kind: str, *, hidden: int, layers: int, vocab: int, mask_id: int, block: int = 7, seed: int = 0
) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """config.json and tensors in float32."""
    taps = [0, layers // 2, layers - 1]
    width = 2 * hidden
    config: dict[str, Any] = {
        "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "rms_norm_eps": 1e-6,
        "vocab_size": vocab, "max_position_embeddings": 4096, "hidden_act": "silu", "attention_bias": False,
        "layer_types": ["full_attention"], "rope_theta": 10000.0, "num_target_layers": layers, "torch_dtype": "float32",
    }  # fmt: skip
    shapes: Shapes = {
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
    add = _dspark if kind.startswith("dspark") else _dflash
    add(kind, config, shapes, {"mask_token_id": mask_id, "target_layer_ids": taps}, block)
    mx.random.seed(seed)
    tensors = {k: mx.random.normal(s) / math.sqrt(s[-1]) + (1.0 if len(s) == 1 else 0.0) for k, s in shapes.items()}
    if kind == "dspark-reduced":
        config["draft_vocab_size"] = REDUCED
        stride = vocab // REDUCED
        tensors["d2t"] = mx.arange(REDUCED) * (stride - 1)
    return config, tensors


def _dspark(kind: str, config: dict[str, Any], shapes: Shapes, places: dict[str, Any], block: int) -> None:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    head = REDUCED if kind == "dspark-reduced" else vocab
    markov = "gated" if kind in ("dspark", "dspark-reduced") else kind.removeprefix("dspark-")
    config |= {
        "architectures": ["Qwen3DSparkModel"], "block_size": block, **places, "markov_head_type": markov,
        "markov_rank": RANK, "enable_confidence_head": True, "confidence_head_with_markov": True,
        "tie_word_embeddings": False,
    }  # fmt: skip
    shapes |= {"markov_head.markov_w1.weight": (vocab, RANK), "markov_head.markov_w2.weight": (head, RANK)}
    if markov == "gated":
        shapes |= {"markov_head.gate_proj.weight": (RANK, hidden + RANK), "markov_head.gate_proj.bias": (RANK,)}
    if markov == "rnn":
        rows = 3 * RANK
        shapes |= {"markov_head.joint_proj.weight": (rows, 2 * RANK + hidden), "markov_head.joint_proj.bias": (rows,)}
    shapes |= {"confidence_head.proj.weight": (1, hidden + RANK), "confidence_head.proj.bias": (1,)}
    if head != vocab:
        shapes["lm_head.weight"] = (head, hidden)


def _dflash(kind: str, config: dict[str, Any], shapes: Shapes, places: dict[str, Any], block: int) -> None:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    config |= {"architectures": ["DFlashDraftModel"], "block_size": block + 1, "tie_word_embeddings": True}
    if kind != "dflash":
        config |= {"layer_types": ["sliding_attention"], "sliding_window": WINDOW, "use_sliding_window": True}
    if kind == "dflash2":
        config |= {"architectures": ["DFlash2DraftModel"], "is_causal": False}
        places = {**places, "conv_group_size": 16, "conv_kernel_size": 2, "selector_rank": RANK, "selector_top_k": 8}
        for conv in ("attention_conv", "mlp_conv"):
            shapes[f"layers.0.{conv}.base_kernel"] = (2, 2, hidden)
            shapes[f"layers.0.{conv}.kernel_projection.weight"] = (2 * 2 * hidden // 16, hidden)
        shapes |= {
            "candidate_selector.hidden_projection.weight": (RANK, hidden),
            "candidate_selector.predecessor_codebook": (vocab, RANK),
            "candidate_selector.successor_codebook": (vocab, RANK),
        }
    config["dflash_config"] = places

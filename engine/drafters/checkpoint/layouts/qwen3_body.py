"""The part of a config that every Qwen3-shaped drafter shares, whatever its packaging."""

from __future__ import annotations

from typing import Any

from engine.drafters.checkpoint.config import LayerRule, LogSnr
from engine.drafters.checkpoint.fields import Fields, Json, causal_override, layer_rules
from engine.drafters.nn.tensors import MASK_ROW
from engine.errors import DrafterRefused


def sizes(backbone: Fields) -> dict[str, Any]:
    """Dimensions of the draft layers, as keywords of DrafterConfig."""
    hidden = backbone.need("hidden_size")
    heads = backbone.need("num_attention_heads")
    head_dim = backbone.get("head_dim") or (hidden // heads if heads else 0)
    return {
        "hidden_size": hidden,
        "intermediate_size": backbone.need("intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": backbone.need("num_key_value_heads", default=heads),
        "head_dim": int(head_dim),
        "rms_norm_eps": float(backbone.get("rms_norm_eps", default=1e-6)),
        "vocab_size": backbone.need("vocab_size"),
        "attention_bias": backbone.flag("attention_bias"),
    }


def rules(fields: Fields, config: Json, nested: Json) -> tuple[LayerRule, ...]:
    """Masks of the draft layers; at least one layer."""
    return layer_rules(config, nested, max(1, fields.layers("num_hidden_layers")), causal_override(config, nested))


def heads(fields: Fields) -> dict[str, Any]:
    """Markov and confidence head, as keywords of DrafterConfig."""
    rank = fields.get("markov_rank", "dspark_markov_rank", default=0)
    kind = fields.get("markov_head_type", "markov_type", default="vanilla")
    if int(rank) > 0 and kind not in ("vanilla", "gated", "rnn"):
        raise DrafterRefused(
            f"The drafter's Markov head is of type {kind!r}, not vanilla, gated or rnn; choose another drafter."
        )
    temperatures = fields.get("confidence_temperatures", default=())
    return {
        "markov_rank": int(rank),
        "markov_kind": kind if int(rank) > 0 else "vanilla",
        "confidence_with_markov": fields.flag("confidence_head_with_markov", default=True),
        "confidence_temperatures": tuple(float(t) for t in temperatures),
    }


def log_snr(fields: Fields) -> LogSnr | None:
    """Range of the log-SNR conditioning, when the file has it. An empty range would divide by zero."""
    if not fields.flag("log_snr_conditioning"):
        return None
    low, high = fields.get("min_log_snr"), fields.get("max_log_snr")
    if low is None or high is None or not float(low) < float(high):
        raise DrafterRefused(
            f"The drafter is conditioned on log-SNR, but its range {low} to {high} is not one; fetch a complete copy."
        )
    return LogSnr(float(low), float(high))


def draft_vocabulary(fields: Fields, vocab_size: int) -> int | None:
    """Size of a reduced draft vocabulary; one that equals the full vocabulary is no reduction."""
    size = fields.get("draft_vocab_size")
    return None if size is None or int(size) == vocab_size else int(size)


def anchor_start(fields: Fields, default: int) -> int:
    """Which block row predicts first, from the flags that state it."""
    sample = fields.get("sample_from_anchor")
    if isinstance(sample, bool):
        return 0 if sample else 1
    bonus = fields.get("dspark_bonus_anchor")
    if isinstance(bonus, bool):
        return 1 if bonus else 0
    return default


def block(fields: Fields) -> dict[str, Any]:
    """Width of a block and what fills its mask rows."""
    if fields.get("block_size") is None:
        raise DrafterRefused(
            "The config names no block_size, so this is no DSpark or DFlash drafter; choose another one."
        )
    mask = fields.get("mask_token_id")
    return {
        "block_size": fields.need("block_size"),
        "mask_token_id": None if mask is None and fields.flag(MASK_ROW) else fields.need("mask_token_id"),
        "num_target_layers": fields.get("num_target_layers"),
    }

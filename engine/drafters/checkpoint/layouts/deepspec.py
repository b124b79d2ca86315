"""DeepSpec's own checkpoints: a copy of the target's config plus drafter keys, Qwen3- or Gemma-4-shaped.

Nemotron's, Ornith's and MiniCPM's heads are variants of the same layout.
"""

from __future__ import annotations

import math
from typing import Any

from engine.drafters.checkpoint.config import DrafterConfig, LayerRule, Rope, Yarn
from engine.drafters.checkpoint.fields import (
    Fields,
    Json,
    causal_override,
    plain_rope,
    quantization,
    rope_theta,
    section,
    tap_ids,
)
from engine.drafters.checkpoint.layouts import qwen3_body
from engine.drafters.checkpoint.layouts.packaging import Packaging
from engine.errors import DrafterRefused

NAME = "DeepSpec"


def matches(config: Json) -> bool:
    architectures = [str(a) for a in config.get("architectures") or ()]
    return any("DSpark" in a for a in architectures) or has_markov(config)


def has_markov(config: Json) -> bool:
    """Whether a head ties the drafts together, whatever the file calls itself."""
    return any(place.get("markov_rank") for place in (config, section(config, "dflash_config")))


def read(config: Json) -> DrafterConfig:
    kind = str(config.get("model_type", ""))
    if "gemma4" in kind:
        return _gemma4(config)
    if not kind.startswith("qwen3"):
        raise DrafterRefused(
            f"Unsupported drafter family {kind or 'without model_type'!r}: DSpark heads are Qwen3- or Gemma-4-shaped."
        )
    return assemble(config, NAME)


def assemble(config: Json, name: str, start: int | None = None, yarn: Yarn | None = None) -> DrafterConfig:
    """A Qwen3-shaped DSpark config, drafter keys at the top or in `dflash_config`. `start` overrides the flags."""
    nested = section(config, "dflash_config")
    fields = Fields(nested, config)
    # Only this lineage means its partial rope, gate and offset norms; others inherit the keys from their target.
    native = "Qwen35DSparkModel" in (config.get("architectures") or ()) and config.get("model_type") == "qwen3_5"
    settings: dict[str, Any] = {
        **qwen3_body.sizes(fields),
        **qwen3_body.block(fields),
        **qwen3_body.heads(fields),
        "layers": qwen3_body.rules(fields, config, nested),
        "taps": tap_ids(fields, "target_layer_ids"),
    }
    rope = plain_rope(fields, config, settings["head_dim"])
    fields.check(name)
    factor = section(config, "rope_parameters").get("partial_rotary_factor") or config.get("partial_rotary_factor")
    dims = int(rope.dims * float(factor or 1.0)) if native else rope.dims
    return DrafterConfig(
        packaging=name,
        kind="dspark",
        logits_start=qwen3_body.anchor_start(fields, 0) if start is None else start,
        rope=Rope(rope.theta, dims, rope.interleaved, yarn=yarn),
        draft_vocab_size=qwen3_body.draft_vocabulary(fields, settings["vocab_size"]),
        gated_query=native and fields.flag("enable_qwen35_gated_q_proj"),
        offset_norms=native,
        softcap=fields.get("final_logit_softcapping"),
        log_snr=qwen3_body.log_snr(fields),
        quantization=quantization(config),
        **settings,
    )


def _gemma4(config: Json) -> DrafterConfig:
    fields = Fields(config, {"mask_token_id": 4})
    if fields.flag("enable_moe_block") or fields.get("hidden_size_per_layer_input"):
        raise DrafterRefused(
            "Gemma-4 drafters with experts or per-layer inputs are not supported; choose another drafter."
        )
    settings: dict[str, Any] = {
        **qwen3_body.sizes(fields),
        **qwen3_body.block(fields),
        **qwen3_body.heads(fields),
        "taps": tap_ids(fields, "target_layer_ids"),
    }
    layers = fields.layers("num_hidden_layers")
    fields.check(NAME)
    head_dim = int(fields.get("global_head_dim", default=settings["head_dim"]))
    k_eq_v = fields.flag("attention_k_eq_v")
    if k_eq_v:
        settings["num_kv_heads"] = int(fields.get("num_global_key_value_heads", default=settings["num_kv_heads"]))
    settings["head_dim"] = head_dim
    full = section(section(config, "rope_parameters"), "full_attention")
    rotated = int(float(full.get("partial_rotary_factor", 0.25)) * head_dim / 2)
    return DrafterConfig(
        packaging=NAME,
        kind="dspark",
        backbone="gemma4",
        logits_start=qwen3_body.anchor_start(fields, 0),
        # All layers of this head are full attention by construction; what layer_types says is the target's.
        layers=(LayerRule(None, bool(causal_override(config, {}))),) * layers,
        rope=Rope(rope_theta(config) or 1e6, head_dim, rotated=rotated),
        k_eq_v=k_eq_v,
        embed_scale=math.sqrt(settings["hidden_size"]),
        draft_vocab_size=qwen3_body.draft_vocabulary(fields, settings["vocab_size"]),
        softcap=fields.get("final_logit_softcapping"),
        quantization=quantization(config),
        **settings,
    )


PACKAGING = Packaging(NAME, matches, read)

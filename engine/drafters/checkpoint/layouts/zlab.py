"""z-lab's DFlash: parallel rows that predict their own position, embedding and head of the target."""

from __future__ import annotations

from typing import Any

from engine.drafters.checkpoint.config import DrafterConfig, Selector
from engine.drafters.checkpoint.fields import (
    Fields,
    Json,
    default_taps,
    plain_rope,
    quantization,
    section,
    tap_ids,
)
from engine.drafters.checkpoint.layouts import qwen3_body
from engine.drafters.checkpoint.layouts.packaging import Packaging

NAME = "DFlash"


def matches(config: Json) -> bool:
    return "DFlashDraftModel" in (config.get("architectures") or ()) or bool(section(config, "dflash_config"))


def read(config: Json) -> DrafterConfig:
    return assemble(config, section(config, "dflash_config"), NAME, None)


def stated_scale(fields: Fields) -> float | None:
    """Factor on the embedding rows, where the file states one; otherwise they are read as the target reads them."""
    scale = fields.get("input_embedding_scale")
    return None if scale is None else float(scale)


def assemble(config: Json, nested: Json, name: str, chosen: Selector | None) -> DrafterConfig:
    """A DFlash config from a flat or nested layout."""
    gemma = "gemma4" in str(config.get("model_type", "")) or "gemma4" in str(config.get("target_model_type", ""))
    fields = Fields(nested, config, {"mask_token_id": 4} if gemma else {})
    settings: dict[str, Any] = {
        **qwen3_body.sizes(fields),
        **qwen3_body.block(fields),
        "layers": qwen3_body.rules(fields, config, nested),
    }
    depth, count = settings["num_target_layers"], len(settings["layers"])
    settings["taps"] = tap_ids(fields, "target_layer_ids", default=list(default_taps(depth, count)) if depth else None)
    rope = plain_rope(fields, config, settings["head_dim"])
    fields.check(name)
    return DrafterConfig(
        packaging=name,
        kind="dflash",
        logits_start=1,
        rope=rope,
        embed_scale=stated_scale(fields),
        # Only where the drafter's author nested it: at the top it is a copy of the target's.
        value_scale=float(nested.get("attention_value_scale") or 1.0),
        output_multiplier=float(fields.get("output_multiplier", default=1.0)),
        softcap=fields.get("final_logit_softcapping"),
        selector=chosen,
        quantization=quantization(config),
        **settings,
    )


PACKAGING = Packaging(NAME, matches, read)

"""The speculators layout of vLLM: nested backbone, tap ids counted from the embedding, optional draft vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from engine.drafters.checkpoint.config import DrafterConfig, LayerRule
from engine.drafters.checkpoint.fields import Fields, Json, layer_rules, plain_rope, quantization, section, tap_ids
from engine.drafters.checkpoint.layouts import qwen3_body, zlab, zlab2
from engine.drafters.checkpoint.layouts.packaging import Packaging
from engine.errors import DrafterRefused

NAME = "speculators"
_ALGORITHMS = {"dspark": "dspark", "dflash": "dflash", "dflash2": "dflash"}
"""What the layout calls it -> the kind that it is."""


def matches(config: Json) -> bool:
    return bool(config.get("speculators_model_type") or config.get("speculators_config"))


def read(config: Json) -> DrafterConfig:
    nested = section(config, "speculators_config")
    algorithm = str(config.get("speculators_model_type") or nested.get("algorithm") or "")
    if algorithm not in _ALGORITHMS:
        raise DrafterRefused(
            f"This speculators file uses the algorithm {algorithm!r}; supported are {', '.join(_ALGORITHMS)}. "
            "Use --drafter lookup instead, which needs no file."
        )
    backbone = section(config, "transformer_layer_config")
    if not backbone:
        raise DrafterRefused("This speculators file has no transformer_layer_config; fetch a complete copy of it.")
    dflash = section(config, "dflash_config")
    fields = Fields(dflash, config, backbone)
    notes: list[str] = []
    settings: dict[str, Any] = {
        **qwen3_body.sizes(Fields(backbone, config)),
        **qwen3_body.block(fields),
        "layers": _rules(fields, config, backbone),
        # Id k names the input of layer k, hence the output of layer k - 1.
        "taps": tap_ids(fields, "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids", shift=-1),
    }
    if algorithm == "dspark":
        settings |= qwen3_body.heads(fields) if fields.get("markov_rank") is not None else {"markov_rank": 256}
    elif fields.get("markov_rank"):  # the head decides, not the label
        settings |= qwen3_body.heads(fields)
    rope = plain_rope(fields, {**config, **backbone}, settings["head_dim"])
    start = _row_convention(fields, nested, settings["block_size"], algorithm, notes)
    if fields.get("aux_hidden_state_layer_offset"):
        notes.append(
            "The config shifts its tap ids (aux_hidden_state_layer_offset); run `dspark-chat probe` on the pair."
        )
    fields.check(NAME)
    own = Fields(dflash, config)
    return DrafterConfig(
        packaging=NAME,
        kind="dspark" if settings.get("markov_rank") else _ALGORITHMS[algorithm],
        logits_start=start,
        rope=rope,
        draft_vocab_size=qwen3_body.draft_vocabulary(fields, settings["vocab_size"]),
        embed_scale=zlab.stated_scale(own),
        output_multiplier=float(own.get("output_multiplier", default=1.0)),
        softcap=own.get("final_logit_softcapping"),
        selector=zlab2.selector(fields) if algorithm == "dflash2" else None,
        quantization=quantization(config),
        notes=tuple(notes),
        **settings,
    )


def dropped(name: str) -> bool:
    """Tensors of the training set-up that inference has no use for."""
    return name == "t2d" or name.startswith("verifier")


def _rules(fields: Fields, config: Json, backbone: Json) -> tuple[LayerRule, ...]:
    count = max(1, fields.layers("num_hidden_layers"))
    wide = backbone if backbone.get("use_sliding_window", True) else {**backbone, "layer_types": None}
    rules = layer_rules(wide, {}, count, None)
    if fields.flag("sliding_window_non_causal"):
        return tuple(LayerRule(rule.window, False) for rule in rules)
    explicit = config.get("is_causal")
    if isinstance(explicit, bool):
        return tuple(LayerRule(rule.window, explicit) for rule in rules)
    return rules


def _row_convention(fields: Fields, nested: Json, width: int, algorithm: str, notes: list[str]) -> int:
    """The declared number of tokens, then the flag; older heads without either leave the anchor row idle."""
    methods = nested.get("proposal_methods")
    first: Any = cast(list[Any], methods)[0] if isinstance(methods, list) and methods else None
    tokens = cast(Mapping[str, Any], first).get("speculative_tokens") if isinstance(first, Mapping) else None
    if isinstance(tokens, int) and width - tokens in (0, 1):
        return width - tokens
    start = qwen3_body.anchor_start(fields, -1)
    if start >= 0:
        return start
    if algorithm == "dspark":
        notes.append(
            "The config does not say which block row predicts first; slot 1 was assumed, and `dspark-chat probe` tells."
        )
    return 1


PACKAGING = Packaging(NAME, matches, read, dropped=dropped)

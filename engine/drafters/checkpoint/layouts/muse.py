"""Meta's Muse-Glimmer assistant: DFlash rows, sliding layers that see the whole block, an encoder-style naming."""

from __future__ import annotations

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import Json, section
from engine.drafters.checkpoint.layouts import zlab
from engine.drafters.checkpoint.layouts.packaging import Packaging

NAME = "Muse-Glimmer assistant"
_RENAMES = {"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "hidden_norm.weight"}


def matches(config: Json) -> bool:
    return "MuseGlimmerAssistantModel" in (config.get("architectures") or ())


def read(config: Json) -> DrafterConfig:
    flat = {"is_causal": False, **config}
    if flat.get("sliding_window") and not flat.get("layer_types"):
        flat["layer_types"] = ["sliding_attention"] * int(flat.get("num_hidden_layers") or 1)
    return zlab.assemble(flat, section(config, "dflash_config"), NAME, None)


def rename(name: str) -> str:
    return _RENAMES.get(name, name)


PACKAGING = Packaging(NAME, matches, read, rename=rename)

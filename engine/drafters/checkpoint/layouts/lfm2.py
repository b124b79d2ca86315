"""LiquidAI's heads: DFlash keys nested, Markov and confidence on top, interleaved rope, the anchor predicts."""

from __future__ import annotations

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import Json, section
from engine.drafters.checkpoint.layouts import deepspec
from engine.drafters.checkpoint.layouts.packaging import Packaging

NAME = "LFM2 DSpark"


def matches(config: Json) -> bool:
    architectures = [str(a) for a in config.get("architectures") or ()]
    if "Lfm2DSparkDraftModel" in architectures:
        return True
    nested = section(config, "dflash_config")
    mixed = bool(nested.get("target_layer_ids")) and deepspec.has_markov(config)
    return mixed and not any("DSparkModel" in a for a in architectures)


def read(config: Json) -> DrafterConfig:
    return deepspec.assemble(config, NAME)


PACKAGING = Packaging(NAME, matches, read)

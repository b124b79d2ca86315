"""SpecForge's nested layout: everything about the draft lies in `dflash_config`, and YaRN is meant."""

from __future__ import annotations

from engine.drafters.checkpoint.config import DrafterConfig, Yarn
from engine.drafters.checkpoint.fields import Json, section
from engine.drafters.checkpoint.layouts import deepspec
from engine.drafters.checkpoint.layouts.packaging import Packaging

NAME = "SpecForge"


def matches(config: Json) -> bool:
    return section(config, "dflash_config").get("projector_type") == "dspark"


def read(config: Json) -> DrafterConfig:
    # The class shipped beside these weights reads slot 1; the weights were trained for slot 0.
    return deepspec.assemble(config, NAME, start=0, yarn=_yarn(config))


def _yarn(config: Json) -> Yarn | None:
    for place in (section(config, "rope_parameters"), section(config, "rope_scaling")):
        if place.get("rope_type", place.get("type")) == "yarn" and place.get("factor"):
            return Yarn(
                float(place["factor"]),
                int(place.get("original_max_position_embeddings", 8192)),
                float(place.get("beta_fast", 32.0)),
                float(place.get("beta_slow", 1.0)),
            )
    return None


PACKAGING = Packaging(NAME, matches, read)

"""z-lab's DFlash 2: DFlash with convolutions in its layers and a selector over each row's candidates."""

from __future__ import annotations

from engine.drafters.checkpoint.config import DrafterConfig, Selector
from engine.drafters.checkpoint.fields import Fields, Json, section
from engine.drafters.checkpoint.layouts import zlab
from engine.drafters.checkpoint.layouts.packaging import Packaging
from engine.errors import DrafterRefused

NAME = "DFlash 2"
_SELECTOR = ("selector_rank", "selector_top_k", "conv_group_size", "conv_kernel_size")


def matches(config: Json) -> bool:
    nested = section(config, "dflash_config")
    return "DFlash2DraftModel" in (config.get("architectures") or ()) or nested.get("selector_rank") is not None


def read(config: Json) -> DrafterConfig:
    nested = section(config, "dflash_config")
    return zlab.assemble(config, nested, NAME, selector(Fields(nested, config)))


def selector(fields: Fields) -> Selector:
    """Raises DrafterRefused when keys are missing: the file would run as DFlash 1 without a word."""
    lacking = [name for name in _SELECTOR if fields.get(name) is None]
    if lacking:
        raise DrafterRefused(
            f"This DFlash 2 drafter's config lacks {', '.join(lacking)}; it would silently run as DFlash 1, "
            "so fetch a complete copy."
        )
    rank, top_k, group, kernel = (int(fields.get(name)) for name in _SELECTOR)
    return Selector(rank, top_k, group, kernel)


PACKAGING = Packaging(NAME, matches, read)

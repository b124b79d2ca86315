"""How drafters come packaged: which layout a config is, and how it reads. One file a layout, one row each in
`registry.LAYOUTS`."""

from __future__ import annotations

from engine.drafters import registry
from engine.drafters.checkpoint.fields import Json, section
from engine.drafters.checkpoint.layouts.packaging import Packaging
from engine.errors import DrafterRefused


def _block_size(config: Json) -> object:
    return section(config, "dflash_config").get("block_size") or config.get("block_size")


def detect(config: Json) -> Packaging:
    """The layout of a config.

    Raises:
        DrafterRefused: for what is no drafter at all, or one of a kind that is not supported.
    """
    if not isinstance(config.get("architectures") or [], list):
        raise DrafterRefused("The drafter's config gives its architectures as no list; fetch a complete copy of it.")
    if any(str(key).startswith("dspark_") for key in config) and _block_size(config) is None:
        raise DrafterRefused(
            "This is a whole model with a drafter built in; use it with --model, or choose a separate drafter."
        )
    projector = section(config, "dflash_config").get("projector_type") or config.get("projector_type")
    if projector is not None and projector not in registry.learned():
        raise DrafterRefused(
            f"The drafter's projector_type {projector!r} is not supported; there are {', '.join(registry.learned())}."
        )
    for packaging in registry.layouts():
        if packaging.matches(config):
            return packaging
    kinds = ", ".join(str(a) for a in config.get("architectures") or ()) or "no architecture"
    raise DrafterRefused(
        f"This is no {' or '.join(registry.learned())} drafter (its config names {kinds}); choose another one."
    )

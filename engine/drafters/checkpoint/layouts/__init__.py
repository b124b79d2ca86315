"""How drafters come packaged: which layout a config is, and how it reads. One file a layout; the order decides ties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import Json, section
from engine.drafters.checkpoint.layouts import deepspec, lfm2, muse, specforge, speculators, zlab
from engine.errors import DrafterRefused


def _same(name: str) -> str:
    return name


def _none(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Packaging:
    """One layout. `read` refuses with a reason; `rename` and `dropped` apply to tensor names."""

    name: str
    matches: Callable[[Json], bool]
    read: Callable[[Json], DrafterConfig]
    rename: Callable[[str], str] = _same
    dropped: Callable[[str], bool] = _none


PACKAGINGS: tuple[Packaging, ...] = (
    Packaging(speculators.NAME, speculators.matches, speculators.read, dropped=speculators.dropped),
    Packaging(zlab.NAME2, zlab.matches2, zlab.read2),
    Packaging(muse.NAME, muse.matches, muse.read, rename=muse.rename),
    Packaging(specforge.NAME, specforge.matches, specforge.read),
    Packaging(lfm2.NAME, lfm2.matches, lfm2.read),
    Packaging(deepspec.NAME, deepspec.matches, deepspec.read),
    Packaging(zlab.NAME, zlab.matches, zlab.read),
)


def _block_size(config: Json) -> object:
    return section(config, "dflash_config").get("block_size") or config.get("block_size")


def detect(config: Json) -> Packaging:
    """The layout of a config.

    Raises:
        DrafterRefused: for what is no drafter at all, or one of a kind that is not supported.
    """
    if any(str(key).startswith("dspark_") for key in config) and _block_size(config) is None:
        raise DrafterRefused(
            "This is a whole model with a drafter built in; use it with --model, or choose a separate drafter."
        )
    projector = section(config, "dflash_config").get("projector_type") or config.get("projector_type")
    if projector not in (None, "dspark", "dflash"):
        raise DrafterRefused(
            f"The drafter's projector_type {projector!r} is not supported; choose a DSpark or DFlash one."
        )
    for packaging in PACKAGINGS:
        if packaging.matches(config):
            return packaging
    kinds = ", ".join(str(a) for a in config.get("architectures") or ()) or "no architecture"
    raise DrafterRefused(f"This is not a DSpark or DFlash drafter (its config names {kinds}); choose another one.")

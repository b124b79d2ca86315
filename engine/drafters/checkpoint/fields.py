"""Reading a drafter's config: nested or flat, null or absent, and named when missing.

Knows the habits of config files, and no packaging.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

from engine.drafters.checkpoint.config import MAX_LAYERS, LayerRule, Rope
from engine.errors import DrafterRefused

Json = Mapping[str, Any]


def section(config: Json, name: str) -> dict[str, Any]:
    """A nested object, empty when absent or null."""
    value = config.get(name)
    return dict(cast(Mapping[str, Any], value)) if isinstance(value, Mapping) else {}


class Fields:
    """Look-ups over several places in order: what the drafter's author nested wins over what a copied target config
    left at the top. A null counts as absent. Missing required names are collected, so that one refusal lists all."""

    def __init__(self, *places: Json) -> None:
        self._places = places
        self.missing: list[str] = []

    def get(self, *names: str, default: Any = None) -> Any:
        for place in self._places:
            for name in names:
                value = place.get(name)
                if value is not None:
                    return value
        return default

    def need(self, *names: str, default: int | None = None) -> int:
        """A required whole number; 0 stands in for a missing one until `check` refuses."""
        value = self.get(*names, default=default)
        if value is None:
            self.missing.append(names[0])
            return 0
        try:
            number = int(value)
            if not 0 <= number < 1 << 31:
                raise ValueError
            return number
        except (TypeError, ValueError, OverflowError):
            raise DrafterRefused(
                f"The drafter's config gives {names[0]} = {value!r}, which is not a number; "
                "correct the file or choose another drafter."
            ) from None

    def layers(self, *names: str) -> int:
        """How many draft layers; bounded before anything is made for each of them."""
        count = self.need(*names)
        if count > MAX_LAYERS:
            raise DrafterRefused(
                f"The drafter's config gives {names[0]} = {count}, which no drafter has; fetch a complete copy of it."
            )
        return count

    def flag(self, *names: str, default: bool = False) -> bool:
        return bool(self.get(*names, default=default))

    def check(self, packaging: str) -> None:
        """Raises DrafterRefused naming every required field that was not found."""
        if self.missing:
            raise DrafterRefused(
                f"This {packaging} drafter's config lacks {', '.join(self.missing)}; "
                "it cannot be loaded without, so fetch a complete copy or choose another drafter."
            )


def tap_ids(fields: Fields, *names: str, shift: int = 0, default: list[int] | None = None) -> tuple[int, ...]:
    """Layer ids as 0-based outputs; strictly ascending, -1 (the embedding) at the least."""
    value = fields.get(*names, default=default)
    if value is None:
        fields.missing.append(names[0])
        return ()
    if not isinstance(value, list) or not value:
        raise DrafterRefused("The drafter's list of target layers is empty or not a list; choose another drafter.")
    ids = tuple(int(v) + shift for v in cast(list[Any], value))
    if any(b <= a for a, b in pairwise(ids)) or ids[0] < -1:
        raise DrafterRefused(
            f"The drafter's target layers {list(ids)} are not strictly ascending from -1; choose another drafter."
        )
    return ids


def default_taps(layers: int, count: int) -> tuple[int, ...]:
    """The trainers' rule for a config that names no layers: evenly spread, the ends left out."""
    if count == 1:
        return (layers // 2,)
    return tuple(round(1 + i * (layers - 4) / (count - 1)) for i in range(count))


def rope_theta(config: Json, default: float | None = None) -> float | None:
    """`rope_parameters` is what current writers fill; a bare `rope_theta` beside it is the older spelling."""
    parameters = section(config, "rope_parameters")
    for place in (section(parameters, "full_attention"), parameters, section(config, "rope_scaling"), config):
        if place.get("rope_theta") is not None:
            return float(place["rope_theta"])
    return default


def plain_rope(fields: Fields, config: Json, head_dim: int) -> Rope:
    """Split-half rope over the whole head. Partial, scaled or multimodal rope in the same config is a copy of the
    target's and not meant here."""
    theta = rope_theta(config)
    if theta is None:
        fields.missing.append("rope_theta")
        theta = 1.0
    interleaved = fields.get("rope_is_neox_style") is False
    return Rope(theta, head_dim, interleaved=interleaved)


def causal_override(config: Json, nested: Json) -> bool | None:
    """An explicit statement about the block's mask, or None: the layer types decide."""
    for place, name in (
        (config, "is_causal"),
        (nested, "is_causal"),
        (nested, "causal"),
        (config, "dflash_query_causal"),
    ):
        if isinstance(place.get(name), bool):
            return place[name]
    value = nested.get("dflash_query_causal")
    return value if isinstance(value, bool) else None


def layer_rules(config: Json, nested: Json, count: int, causal: bool | None) -> tuple[LayerRule, ...]:
    """One rule a draft layer, from layer types and windows. A list of another length is the target's own and is not
    meant. Without an explicit statement sliding layers are causal and full layers bidirectional."""
    window = nested.get("swa_window_size") or config.get("sliding_window") or nested.get("sliding_window")
    window = window or config.get("swa_window_size")
    everywhere = bool(nested.get("use_swa") or config.get("use_swa"))
    raw = config.get("layer_types") or nested.get("layer_types")
    types = cast(list[str], raw) if isinstance(raw, list) and len(cast(list[str], raw)) == count else []
    if not types or (everywhere and "sliding_attention" not in types):
        types = ["sliding_attention" if everywhere else "full_attention"] * count
    rules: list[LayerRule] = []
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            raise DrafterRefused(
                f"The drafter has a layer of type {kind!r}; only full and sliding attention are supported."
            )
        sliding = kind == "sliding_attention"
        if sliding and not window:
            raise DrafterRefused("The drafter has sliding layers but no sliding_window; fetch a complete copy of it.")
        rules.append(LayerRule(int(window) if sliding and window else None, sliding if causal is None else causal))
    return tuple(rules)


def quantization(config: Json) -> tuple[int, int] | None:
    """(group size, bits) of an MLX-quantised file."""
    value = section(config, "quantization")
    if not value:
        return None
    return int(value.get("group_size", 64)), int(value.get("bits", 4))

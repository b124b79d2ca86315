"""What the prefix cache tells others: one match, and what it holds and did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.drafters.base import ContextSnapshot
    from engine.kv_cache.base import Snapshot
    from engine.prefix_cache.radix_tree import Hit


@dataclass(frozen=True, slots=True)
class Match:
    """Use: `state.restore(match.snapshot, match.length)`, then prefill tokens[match.length:], which is never empty."""

    length: int
    snapshot: Snapshot
    context: ContextSnapshot | None
    """For the drafter asked for, restorable at `length` (its own length may be more); None: start context-bare."""
    kind: Hit
    ms: float
    """Time spent here: the search and, for what was only on disk, the reading."""


@dataclass(frozen=True, slots=True)
class Stats:
    """For panels, metrics and `doctor`. Bytes are exact sums over what is held."""

    entries: int
    nbytes: int
    budget: int
    hits: Mapping[str, int]
    """Restores by kind, `miss` included."""
    tokens_served: int
    tokens_asked: int
    evicted: int
    refused: int
    """Prefixes that were not kept because they did not fit."""
    unsound: int = 0
    """Stored states that did not add up and were dropped instead of served; anything but 0 is a fault."""
    nodes: int = 0
    """Of the trees, those included that only a file holds."""
    disk_entries: int = 0
    disk_bytes: int = 0
    disk_errors: int = 0
    disk_error: str = ""
    """The last one, as a sentence."""

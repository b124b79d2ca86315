"""What the prefix cache tells others: one match, what it holds and did, and the log of faults that doctor reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine import paths

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


def fault_log() -> Path:
    return paths.state() / "prefix-faults.log"


def record_fault(sentence: str) -> None:
    """Keep it for whoever asks `doctor` later; a line a fault. Not being able to must not cost the answer."""
    with contextlib.suppress(OSError):
        fault_log().parent.mkdir(parents=True, exist_ok=True)
        with fault_log().open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")


def recorded_faults() -> list[str]:
    """All that were recorded, oldest first."""
    try:
        return fault_log().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []

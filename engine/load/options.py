"""How a model is found, loaded and decoded: what a front end or a Python program may choose. Loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.config import Config
from engine.decoding.chunk_budget import STALL_MS
from engine.decoding.draft_length.policy import EngineCap
from engine.drafters.block import CONTEXT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a model is found, loaded and decoded. Every field has a default."""

    drafter: str = "auto"
    """`auto`, `none`, `lookup`, a kind (drafters/registry.py), `lookup+` and a kind, or a repository, folder
    or .gguf file, also one of a repository (`owner/name/file.gguf`)."""
    cap: EngineCap = None
    """Draft length: None lets the measured policy choose, a number pins it, "full" is the whole block."""
    max_batch: int = 1
    """Sequences that may decode together."""
    state_bytes: int | None = None
    """What their KV caches may take together; 0 sets no limit, None is what the memory leaves."""
    stall_ms: float = STALL_MS
    """Longest wait of a running request for a part of another one's prompt."""
    cache_bytes: int | None = None
    """Budget of the prefix cache; 0 turns it off, None takes a share of the memory."""
    disk_bytes: int = 0
    """What the prefix cache may keep on disk beyond the process; 0 keeps nothing."""
    kv_bits: int = 0
    """Keys and values of full attention in 4, 6 or 8 bits; 0 keeps them whole."""
    context: int | None = None
    """Tokens of context that are wanted; None is what the model and the memory allow."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Entries of the model's config to replace."""
    drafter_window: int = CONTEXT_ROWS
    """Positions that full-attention layers of a learned drafter look back; 0 for all."""
    pin_weights: bool = False
    """Keep macOS from paging the weights out between answers."""
    folders: Sequence[Path | str] = ()
    """Where models may lie besides the usual places."""
    fetch: bool = True
    """False never touches the network."""
    measure: bool = False
    """Time a learned drafter that was never timed on this machine, which takes about ten seconds, once."""

    @classmethod
    def of(cls, config: Config, **more: Any) -> LoadOptions:
        """What the settings say, and `more` of what they do not know.

        Raises:
            UsageError: when an override is not KEY=VALUE.
        """
        return cls(
            drafter=config.drafter,
            # Nobody asked for a length: the measured policy, or the card, knows one.
            cap=config.cap if "cap" in config.sources else None,
            cache_bytes=None if config.prefix_cache is None else config.prefix_cache << 20,
            disk_bytes=config.prefix_disk << 20,
            folders=config.folders,
            **config.loading(),
            **more,
        )

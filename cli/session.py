"""From settings to a loaded engine: the one place where the command line asks for a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import backend as backend  # before MLX, see its docstring
from engine import hub
from engine.config import Config


def open_session(config: Config, on_progress: Callable[[hub.Progress], None] | None = None) -> Any:
    """Load the engine under these settings.

    Raises:
        DsparkError: with one sentence.
    """
    from engine.launch import load

    hub.trust_remote_code(config.trust_remote_code)
    # Nobody asked for a cap: the card may know one.
    cap = config.cap if "cap" in config.sources else None
    return load(config.model, drafter=config.drafter, cap=cap, folders=config.folders, on_progress=on_progress)

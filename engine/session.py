"""From settings to a loaded engine: the one place where a front end asks for a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine import backend as backend  # before MLX, see its docstring
from engine import hub
from engine.config import Config
from engine.decoding.chunk_budget import STALL_MS

if TYPE_CHECKING:
    from engine.engine import Engine


def open_session(
    config: Config,
    on_progress: Callable[[hub.Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    *,
    measure: bool = False,
    max_batch: int = 1,
    state_bytes: int | None = None,
    stall_ms: float = STALL_MS,
) -> Engine:
    """Load the engine under these settings. `max_batch` is how many requests may decode together, `state_bytes` what
    their states may take (None: what the memory leaves), `stall_ms` how long one waits for another's prompt; `measure`
    times a learned drafter that was never timed on this machine.

    Raises:
        DsparkError: with one sentence.
    """
    from engine.load import load

    hub.trust_remote_code(config.trust_remote_code)
    # Nobody asked for a cap: the measured policy, or the card, knows one.
    cap = config.cap if "cap" in config.sources else None
    return load(
        config.model,
        drafter=config.drafter,
        cap=cap,
        max_batch=max_batch,
        state_bytes=state_bytes,
        stall_ms=stall_ms,
        cache_bytes=None if config.prefix_cache is None else config.prefix_cache << 20,
        disk_bytes=config.prefix_disk << 20,
        folders=config.folders,
        **config.loading(),
        on_progress=on_progress,
        stop=stop,
        measure=measure,
    )

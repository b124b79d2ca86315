"""What the app needs to offer and change models: a protocol, and the real thing, which imports the engine when asked.

Every method is called on a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.config import Config
from engine.diagnostics.model_preview import Choice, Outlook
from tui.engine_port import EngineLike, Progress, default_loader, told

Tell = Callable[[Progress], None]
Stop = Callable[[], bool]

DENSE = 8
"""A 4-bit file may become so many times as large in memory."""


class ModelsLike(Protocol):
    """Where models come from."""

    def choices(self) -> list[Choice]:
        """What is on disk and what is known by name. No network."""
        ...

    def outlook(self, name: str, ask: bool, stop: Stop) -> Outlook:
        """What loading it would mean; `ask`: the hub may be asked."""
        ...

    def prepare(self, config: Config, held: int, tell: Tell, stop: Stop) -> bool:
        """Fetch what is missing, while another model, which holds so many bytes, still answers. Whether the new one has
        room beside it.

        Raises:
            DsparkError: it cannot be had, or does not fit this machine at all.
        """
        ...

    def load(self, config: Config, tell: Tell, stop: Stop) -> EngineLike: ...


class Models:
    """From disk, the catalog and the hub."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def choices(self) -> list[Choice]:
        from engine.diagnostics.model_preview import choices

        return choices(self._config.folders)

    def outlook(self, name: str, ask: bool, stop: Stop) -> Outlook:
        from engine.diagnostics.model_preview import outlook

        c = self._config
        return outlook(name, folders=c.folders, ask=ask, kv_bits=c.kv_bits, context=c.context, stop=stop)

    def prepare(self, config: Config, held: int, tell: Tell, stop: Stop) -> bool:
        from engine import hub
        from engine.errors import Cancelled, DsparkError, MemoryShort

        report = told(tell)
        found = hub.ensure(config.model, folders=config.folders, on_progress=report, stop=stop)
        best = found.card.drafters.get(found.card.mode, "") if found.card else ""
        if best:
            try:
                hub.ensure_drafter(best, folders=config.folders, on_progress=report, stop=stop)
            except Cancelled:
                raise
            except DsparkError:
                pass  # loading goes on without it, and its reason stands in the list
        look = self.outlook(config.model, False, stop)
        if look.trouble:
            raise MemoryShort(look.trouble)
        need = look.weights or look.size * DENSE
        return not look.room or held + need * 9 // 8 <= look.room

    def load(self, config: Config, tell: Tell, stop: Stop) -> EngineLike:
        return default_loader(config, stop)(tell)


def held(engine: EngineLike) -> int:
    """Bytes that a loaded model and its prefix cache hold."""
    weights = int(getattr(engine.spec, "weight_bytes", 0))
    return weights + int(getattr(getattr(engine, "cache_stats", None), "nbytes", 0) or 0)

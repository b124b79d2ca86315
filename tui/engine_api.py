"""What the app needs from an engine, and from the place that models come from, as protocols; and the real things.

The scripted ones of the tests fit as well. Importing this imports no MLX; `load` and the methods of `Models` do, and
are called on worker threads after the first frame.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.chat.reasoning import ThinkSplitter
from engine.config import Config
from engine.diagnostics.model_preview import Choice, Outlook
from engine.errors import Cancelled
from engine.types import Event, Media, Request, Source

Listener = Callable[[Event], None]


class DrafterLike(Protocol):
    """A drafter as listed; one that cannot run says why, and one that can may have something to be known."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> Source: ...
    @property
    def available(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str: ...


class TicketLike(Protocol):
    """One request under way. Every method may be called from any thread and returns at once."""

    def cancel(self) -> None: ...
    def use(self, drafter: str | None = None, cap: int | None = None) -> None:
        """From the next round on."""
        ...


class SpecLike(Protocol):
    """Facts about the loaded model that the header shows."""

    @property
    def name(self) -> str: ...
    @property
    def context(self) -> int: ...
    @property
    def vision(self) -> bool: ...


class PromptLike(Protocol):
    """A conversation as the model reads it."""

    @property
    def ids(self) -> list[int]: ...
    @property
    def boundaries(self) -> tuple[int, ...]: ...


class FormatLike(Protocol):
    """The model's way to write conversations."""

    @property
    def thinks(self) -> bool:
        """Whether the model reasons before it answers."""
        ...

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], *, thinking: bool | None = None, effort: str | None = None
    ) -> PromptLike: ...
    def splitter(self, ids: Sequence[int]) -> ThinkSplitter:
        """Tells reasoning from reply in the text that follows this prompt."""
        ...


class TokenizerLike(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...


class SeenLike(Protocol):
    """A prompt with its pictures in their places."""

    @property
    def ids(self) -> list[int]: ...
    @property
    def embeddings(self) -> Any: ...
    @property
    def media(self) -> tuple[Media, ...]: ...
    @property
    def places(self) -> tuple[tuple[int, int], ...]: ...
    def moved(self, boundaries: Sequence[int]) -> tuple[int, ...]: ...


class EngineLike(Protocol):
    """A loaded model that answers."""

    drafter: str

    @property
    def spec(self) -> SpecLike: ...
    @property
    def tokenizer(self) -> TokenizerLike: ...
    @property
    def format(self) -> FormatLike: ...
    @property
    def drafters(self) -> Sequence[DrafterLike]: ...
    @property
    def generation(self) -> Mapping[str, Any]:
        """The checkpoint's generation_config.json."""
        ...

    def see(self, ids: Sequence[int], pictures: Sequence[Any]) -> SeenLike: ...
    def picture_tokens(self, picture: Any) -> int:
        """What a picture would take of the context; any thread may ask."""
        ...

    def submit(self, request: Request, listener: Listener | None = None) -> TicketLike: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far loading is. `total` 0 means unknown."""

    text: str
    done: int = 0
    total: int = 0


Loader = Callable[[Callable[[Progress], None]], EngineLike]
"""Called on a worker thread with a function that takes progress."""


def told(progress: Callable[[Progress], None], stop: Callable[[], bool] = lambda: False) -> Callable[[Any], None]:
    """A listener for the steps of getting a model ready: says them in words, and ends a load between two of them."""

    def report(step: Any) -> None:
        if step.stage in ("load", "note") and stop():
            raise Cancelled("Loading was stopped.")
        if step.words:
            progress(Progress(step.words, step.done, step.total))

    return report


def default_loader(config: Config, stop: Callable[[], bool] = lambda: False) -> Loader:
    """Loads the model that the settings name; `stop` ends it. MLX is imported when it is called."""

    def load(progress: Callable[[Progress], None]) -> EngineLike:
        from engine.load import load_session

        engine: Any = load_session(config, told(progress, stop), stop, measure=True)
        return engine

    return load


def settle_memory() -> None:
    """What lives by now, libraries above all, is left out of garbage collections: a full one would stand in the way of
    a key for a tenth of a second, every few dozen screens."""
    gc.freeze()


def release_model_memory() -> None:
    """After a model was closed and nobody holds it: hand its memory back to the system. MLX keeps freed buffers, and so
    does the allocator of glibc."""
    gc.unfreeze()
    gc.collect()
    core: Any = sys.modules.get("mlx.core")
    if core is not None:
        core.clear_cache()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


# Models that can be loaded --------------------------------------------------------------------------------------------

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

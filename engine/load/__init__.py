"""From a name to an engine: locate the model, load the target, build the engine, attach its drafters; in that order.

The only place that knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import backend, hub
from engine.calibration.calibrator import LOOKUP
from engine.config import Config
from engine.decoding.admission import rows_budget
from engine.decoding.scheduler import Scheduler
from engine.engine import Engine, Options
from engine.errors import Cancelled
from engine.hub import Listener, Progress, Stop
from engine.hub.catalog import Card
from engine.load.attach_drafters import DrafterSource, attach, check_name
from engine.load.options import LoadOptions
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier, default_folder
from engine.prefix_cache.eviction import default_budget
from engine.prefix_cache.stats import record_fault
from engine.targets.base import TargetSpec
from engine.targets.memory_estimate import USABLE

if TYPE_CHECKING:
    from engine.targets.load import Loaded

__all__ = ["LoadOptions", "load", "load_session", "open_engine"]


def load(
    model: str = "",
    options: LoadOptions | None = None,
    *,
    on_progress: Listener | None = None,
    stop: Stop | None = None,
    **changes: Any,
) -> Engine:
    """Load a model and everything that drafts for it; downloads what is missing.

    Args:
        model: catalog name, `owner/name`, a folder or a .gguf file; empty for the embedded model.
        options: see `LoadOptions`; single ones may be given as keywords instead (`load("qwen3-4b", drafter="none")`).

    Raises:
        DsparkError: with one sentence; see engine/errors.py.
    """
    wanted = replace(options or LoadOptions(), **changes)
    tell = on_progress or (lambda _progress: None)
    source = DrafterSource(tuple(wanted.folders), wanted.fetch, on_progress, stop)
    check_name(hub.find(model, wanted.folders), wanted.drafter, source)
    found = hub.ensure(model, folders=wanted.folders, on_progress=on_progress, stop=stop, fetch=wanted.fetch)
    assert found.path is not None
    tell(Progress("load", text=found.name))

    def decided(loaded: Loaded) -> Options:
        pinned = [backend.pin(loaded.target.spec.weight_bytes)] if wanted.pin_weights else []
        for note in (*loaded.notes, *pinned):
            tell(Progress("note", text=note))
        return _engine_options(wanted, found.card, loaded.target.spec)

    target = {"overrides": wanted.overrides, "kv_bits": wanted.kv_bits, "context": wanted.context}
    engine = _build(found.path, found.name, decided, **target)
    try:
        engine.watch_memory()
        tell(Progress("note", text="checking the model"))
        attach(engine, found, wanted.drafter, source)
        engine.admission.budget = _left(engine) if wanted.state_bytes is None else wanted.state_bytes
    except BaseException:
        engine.close()
        raise
    if any(name != LOOKUP for name in engine.calibrator.load()) and wanted.measure:
        tell(Progress("warmup", text=found.name))
        _measure(engine, tell, stop)
    tell(Progress("ready", text=found.name))
    return engine


def load_session(config: Config, on_progress: Listener | None = None, stop: Stop | None = None, **more: Any) -> Engine:
    """The engine that the settings ask for; what every front end calls. `more`: fields of `LoadOptions`.

    Raises:
        DsparkError: with one sentence.
    """
    hub.trust_remote_code(config.trust_remote_code)
    return load(config.model, LoadOptions.of(config, **more), on_progress=on_progress, stop=stop)


def open_engine(path: str | Path, *, name: str = "", options: Options | None = None) -> Engine:
    """An engine for a model that is on disk, without the catalog: no drafters but lookup, no checks, no cache."""
    return _build(path, name, lambda _loaded: options or Options())


def _build(path: str | Path, name: str, options: Callable[[Loaded], Options], **target: Any) -> Engine:
    """The model thread, the target on it, and an engine over both."""
    from engine.targets.load import load_target

    scheduler = Scheduler()
    try:
        loaded = scheduler.run_exclusive(lambda: load_target(path, name=name, **target)).result()
        return Engine(scheduler, loaded, options(loaded))
    except BaseException:
        scheduler.close()
        raise


def _engine_options(wanted: LoadOptions, card: Card | None, spec: TargetSpec) -> Options:
    """What was asked for, and what the card knows where nobody said otherwise."""
    options = Options(
        wanted.drafter,
        wanted.cap,
        max_batch=wanted.max_batch,
        stall_ms=wanted.stall_ms,
        drafter_window=wanted.drafter_window,
        cache=_cache(spec, wanted.cache_bytes, wanted.disk_bytes),
    )
    if card is None:
        # Each drafted row of a mixture of experts may wake other experts: copying is no longer nearly free there.
        return replace(options, lookup=spec.experts is None)
    # What was best on somebody's machine is where this one starts until it is measured.
    return replace(options, lookup=card.lookup, fallback=card.cap if options.cap is None else None)


def _measure(engine: Engine, tell: Listener, stop: Stop | None) -> None:
    """Once for a machine and a pair; impatience costs the numbers, not the load."""
    try:
        engine.calibrator.measure(
            progress=lambda _what, done: tell(Progress("warmup", text=f"this machine, {100 * done:.0f} %")), stop=stop
        )
    except Cancelled:
        tell(Progress("note", text="this machine was not measured"))


def _left(engine: Engine) -> int:
    """Bytes for running requests beside the weights and the prefix cache, enough for one as long as the window."""
    admission, cache = engine.admission, engine.options.cache
    longest = [admission.need(engine.spec.context, 0, chain) for chain in engine.chains.values()]
    whole = max(admission.bytes([need]) for need in longest)
    memory = int(backend.memory_bytes() * USABLE)
    return rows_budget(memory, engine.spec.weight_bytes, cache.budget if cache is not None else 0, whole)


def _cache(spec: TargetSpec, size: int | None, disk: int) -> PrefixCache | None:
    memory = backend.memory_bytes()
    budget = default_budget(memory, memory - spec.weight_bytes) if size is None else size
    tier = DiskTier(default_folder(), disk, label=spec.name) if disk > 0 else None
    return PrefixCache(budget, tier, record_fault) if budget > 0 else None

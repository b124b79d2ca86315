"""From a name to an engine: catalog, download, target, drafters, prefix cache, measured costs, in that order.

The only place that knows all of them. A drafter that cannot be had or does not fit is listed with its reason; only one
that was asked for by name stops the load.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import backend, hub, paths
from engine.calibration.calibrator import LOOKUP
from engine.decoding.admission import rows_budget
from engine.decoding.chunk_budget import STALL_MS
from engine.decoding.draft_length.policy import EngineCap
from engine.decoding.scheduler import Scheduler
from engine.drafters.block import CONTEXT_ROWS
from engine.engine import Engine, Options
from engine.errors import Cancelled, DsparkError, UnknownDrafter, UnsupportedModel
from engine.hub import Found, Listener, Progress, Stop
from engine.hub.catalog import Card
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier, default_folder
from engine.prefix_cache.eviction import default_budget
from engine.targets.base import TargetSpec
from engine.targets.families.dense import MlxTarget
from engine.targets.memory_estimate import USABLE
from engine.targets.self_check import Verdict, cached_probe
from engine.types import Source

log = logging.getLogger("dspark.launch")

PLAIN = ("none", "lookup")


def load(
    model: str = "",
    *,
    drafter: str = "auto",
    cap: EngineCap = None,
    max_batch: int = 1,
    state_bytes: int | None = None,
    stall_ms: float = STALL_MS,
    cache_bytes: int | None = None,
    disk_bytes: int = 0,
    kv_bits: int = 0,
    context: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    drafter_window: int = CONTEXT_ROWS,
    pin_weights: bool = False,
    folders: Sequence[Path | str] = (),
    fetch: bool = True,
    measure: bool = False,
    on_progress: Listener | None = None,
    stop: Stop | None = None,
) -> Engine:
    """Load a model and everything that drafts for it; downloads what is missing.

    Args:
        model: catalog name, `owner/name`, a folder or a .gguf file; empty for the embedded model.
        drafter: `auto`, `none`, `lookup`, `dspark`, `dflash`, `lookup+dspark`, or a repository, folder or .gguf file,
            also one of a repository (`owner/name/file.gguf`).
        cap: draft length: None lets the measured policy choose, a number pins it, "full" is the whole block.
        max_batch: sequences that may decode together.
        state_bytes: what their states may take together; 0 sets no limit, None is what the memory leaves.
        stall_ms: longest wait of a running request for a part of another one's prompt.
        cache_bytes: budget of the prefix cache; 0 turns it off, None takes a share of the memory.
        disk_bytes: what the prefix cache may keep on disk beyond the process; 0 keeps nothing.
        kv_bits: keys and values of full attention in 4, 6 or 8 bits; 0 keeps them whole.
        context: tokens of context that are wanted; None is what the model and the memory allow.
        overrides: entries of the model's config to replace.
        drafter_window: positions that full-attention layers of a learned drafter look back; 0 for all.
        pin_weights: keep macOS from paging the weights out between answers.
        fetch: False never touches the network.
        measure: time a learned drafter that was never timed on this machine, which takes about ten seconds, once.

    Raises:
        DsparkError: with one sentence; see engine/errors.py.
    """
    tell = on_progress or (lambda _progress: None)
    shelves = _Shelves(tuple(folders), fetch, on_progress, stop)
    _known(hub.find(model, folders), drafter, shelves)
    found = hub.ensure(model, folders=folders, on_progress=on_progress, stop=stop, fetch=fetch)
    assert found.path is not None
    path = found.path
    tell(Progress("load", text=found.name))
    options = Options(drafter, cap, max_batch=max_batch, stall_ms=stall_ms, drafter_window=drafter_window)
    scheduler = Scheduler()
    try:
        from engine.targets.load import load_target

        loaded = scheduler.run_exclusive(
            lambda: load_target(path, name=found.name, overrides=overrides, kv_bits=kv_bits, context=context)
        ).result()
        spec = loaded.target.spec
        for note in (*loaded.notes, *([backend.pin(spec.weight_bytes)] if pin_weights else ())):
            tell(Progress("note", text=note))
        options = replace(_with_card(options, found.card, spec), cache=_cache(spec, cache_bytes, disk_bytes))
        engine = Engine(scheduler, loaded, options)
        engine.watch_memory()
        tell(Progress("note", text="checking the model"))
        _offer(engine, found, drafter, shelves)
        engine.admission.budget = _left(engine) if state_bytes is None else state_bytes
    except BaseException:
        scheduler.close()
        raise
    if any(name != LOOKUP for name in engine.calibrator.load()) and measure:
        tell(Progress("warmup", text=found.name))
        _measure(engine, tell, stop)
    tell(Progress("ready", text=found.name))
    return engine


@dataclass(frozen=True, slots=True)
class _Shelves:
    """Where drafters may come from, and who hears of it."""

    folders: tuple[Path | str, ...]
    fetch: bool
    on_progress: Listener | None
    stop: Stop | None

    def local(self, reference: str) -> Path | None:
        return hub.drafter_path(reference, self.folders)

    def download(self, reference: str) -> Path:
        return hub.ensure_drafter(reference, folders=self.folders, on_progress=self.on_progress, stop=self.stop)


def _known(found: Found, wanted: str, shelves: _Shelves) -> None:
    """Before gigabytes are fetched and loaded for nothing.

    Raises:
        UnknownDrafter: `wanted` cannot be a drafter of this model.
    """
    mode = wanted.removeprefix("lookup+")
    if mode in ("auto", *PLAIN) or (found.card is not None and mode in found.card.drafters) or shelves.local(mode):
        return
    if mode in ("dspark", "dflash"):
        raise UnknownDrafter(
            f"No {mode} drafter is known for {found.name}; name one with --drafter owner/name or a folder, "
            "or use --drafter lookup."
        )
    if "/" not in mode or not shelves.fetch:
        raise UnknownDrafter(
            f"There is no drafter '{mode}'; give none, lookup, dspark, dflash, a folder, a .gguf, "
            "owner/name or owner/name/file.gguf."
        )


def _with_card(options: Options, card: Card | None, spec: TargetSpec) -> Options:
    """What the card knows, where nobody said otherwise."""
    if card is None:
        # Each drafted row of a mixture of experts may wake other experts: copying is no longer nearly free there.
        return replace(options, lookup=spec.experts is None)
    # What was best on somebody's machine is where this one starts until it is measured.
    return replace(options, lookup=card.lookup, fallback=card.cap if options.cap is None else None)


def _offer(engine: Engine, found: Found, wanted: str, shelves: _Shelves) -> None:
    """Drafters, as far as the model can be rolled back under them."""
    verdict = _judge(engine)
    if verdict.offer == "all":
        _add_drafters(engine, found, wanted, shelves)
    else:
        _withhold(engine, found, wanted, verdict)


def _measure(engine: Engine, tell: Listener, stop: Stop | None) -> None:
    """Once for a machine and a pair; impatience costs the numbers, not the load."""
    try:
        engine.calibrator.measure(
            progress=lambda _what, done: tell(Progress("warmup", text=f"this machine, {100 * done:.0f} %")), stop=stop
        )
    except Cancelled:
        tell(Progress("note", text="this machine was not measured"))


def _judge(engine: Engine) -> Verdict:
    """Whether the model, with the libraries installed here, does what drafting relies on; about a second, once.

    Raises:
        UnsupportedModel: when it does not even decode as its own library does.
    """
    target = engine.target
    verdict = Verdict("all")
    if isinstance(target, MlxTarget):
        verdict = engine.run_exclusive(lambda: cached_probe(target, paths.cache() / "probes"))
    if verdict.offer == "refused":
        raise UnsupportedModel(verdict.reason)
    return verdict


def _withhold(engine: Engine, found: Found, wanted: str, verdict: Verdict) -> None:
    """Offer what the verdict leaves.

    Raises:
        UnknownDrafter: when something else was asked for by name.
    """
    left = ("auto", "none", "lookup") if verdict.offer == "lookup" else ("auto", "none")
    if wanted not in left:
        raise UnknownDrafter(f"{verdict.reason} Start with --drafter {left[-1]}.")
    for name in (*(found.card.drafters if found.card else ()), *(() if "lookup" in left else ("lookup",))):
        engine.refuse_drafter(name, Source.LOOKUP if name == "lookup" else Source.DRAFT, verdict.reason)
    engine.drafter = _default(engine, wanted, wanted, None) if "lookup" in left else "none"


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
    return PrefixCache(budget, tier) if budget > 0 else None


def _add_drafters(engine: Engine, found: Found, wanted: str, shelves: _Shelves) -> None:
    card = found.card
    mode = wanted.removeprefix("lookup+")
    for name, reference in (card.drafters if card else {}).items():
        asked = mode == name
        best = wanted == "auto" and card is not None and card.mode == name
        local = shelves.local(reference)
        if local is None and not (shelves.fetch and (asked or best)):
            reason = f"not downloaded ({reference}); start with --drafter {name} to fetch it"
            engine.refuse_drafter(name, Source.DRAFT, reason)
            continue
        try:
            _load(engine, local or shelves.download(reference), name, card, shelves.on_progress)
        except DsparkError as error:
            if asked:
                raise
            engine.refuse_drafter(name, Source.DRAFT, str(error))
    if mode not in ("auto", *PLAIN) and mode not in engine.chains:
        # A drafter given by path or repository.
        mode = _load(engine, shelves.local(mode) or shelves.download(mode), None, None, shelves.on_progress)
    engine.drafter = _default(engine, wanted, mode, card)


def _load(engine: Engine, path: Path, name: str | None, card: Card | None, on_progress: Listener | None) -> str:
    from engine.drafters.load import load_drafter

    threshold, window = card.confidence if card else 0.0, engine.options.drafter_window or None
    drafter = engine.run_exclusive(
        lambda: load_drafter(path, engine.target, name=name, threshold=threshold, context_rows=window)
    )
    engine.add_drafter(drafter)
    if not path.is_relative_to(hub.BUNDLED_FOLDER):
        _look(engine, path, drafter.name, drafter.fingerprint, on_progress)
    return drafter.name


def _look(engine: Engine, path: Path, name: str, fingerprint: str, on_progress: Listener | None) -> None:
    """Warn where a drafter's file is read as it says, but was trained otherwise."""
    from engine.diagnostics import drafter_check_quick

    try:
        prompt = engine.format.render([{"role": "user", "content": drafter_check_quick.QUESTION}])
        tokens = [*prompt, *engine.tokenizer.encode(drafter_check_quick.ANSWER)]
        folder = paths.cache() / "probes"
        found = engine.run_exclusive(
            lambda: drafter_check_quick.warning(engine.target, path, fingerprint, tokens, folder)
        )
    except Exception:  # a check that fails must not cost the load
        log.exception("the reading of %s was not checked", path)
        return
    engine.remark(name, "reading", found)
    if found and on_progress is not None:
        on_progress(Progress("note", text=f"The drafter {name} {found}."))


def _default(engine: Engine, wanted: str, mode: str, card: Card | None) -> str:
    """The chain that requests use when they name none."""
    if wanted != "auto":
        return f"lookup+{mode}" if wanted.startswith("lookup+") else mode
    hybrid = engine.options.lookup
    for name, _ in card.drafters_in_order() if card else ():
        if name in engine.chains and name not in PLAIN:
            return f"lookup+{name}" if hybrid else name
    return "lookup" if hybrid else "none"

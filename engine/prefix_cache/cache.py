"""The prefix cache: what was read once is not read again.

A radix tree per state key holds, for every prefix that was computed, the keys and values of its own tokens and, where
a model has layers that cannot be cut, checkpoints of these; beside them the drafters' contexts. What goes in is a copy
and what comes out is immutable, so a request that fails or is cancelled damages nothing. Knows token ids and snapshots;
no model, no template and no text. All calls happen on the model thread.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import mlx.core as mx
import numpy as np

from engine.prefix_cache import drafter_states
from engine.prefix_cache.blocks import Layout
from engine.prefix_cache.eviction import PROBATION, SHORT, Mark, Victim, plan_marks, shallow, survey
from engine.prefix_cache.radix_tree import Hit, Node, Tokens, Tree
from engine.prefix_cache.stats import Match, Stats

if TYPE_CHECKING:
    from engine.drafters.base import ContextSnapshot
    from engine.kv_cache.base import Snapshot
    from engine.prefix_cache.disk import DiskTier

__all__ = ["Hit", "Mark", "Match", "PrefixCache", "Stats"]

MEMORY = 0.8
"""How much of the measured prefill rate each new one leaves."""
LEAST = 32
"""Fewer tokens are no measurement of a rate."""
MAX_NODES = 1024
"""Keeps the number of live buffers far from the limit that Metal has per process."""


@dataclass(eq=False, slots=True)
class _Space:
    """All that belongs to one state key."""

    layout: Layout | None = None
    tree: Tree = field(default_factory=Tree)
    measured: tuple[float, float] = (0.0, 0.0)
    """Tokens and milliseconds of prefills, older ones fading."""

    @property
    def ms_per_token(self) -> float:
        tokens, ms = self.measured
        return ms / tokens if tokens else 0.0

    @property
    def whole(self) -> bool:
        """All layers append, so that every length of a path can be restored."""
        return self.layout is not None and self.layout.trimmable


class _Found(NamedTuple):
    length: int
    path: list[Node]
    """Nodes whose blocks reach `length`."""
    base: Node | None
    """Whose checkpoint; None where all layers append."""
    kind: Hit


class PrefixCache:
    """One byte budget over all state keys; a disk tier below it when given one."""

    def __init__(self, budget_bytes: int, disk: DiskTier | None = None) -> None:
        self.budget = budget_bytes
        self.disk = disk
        if disk is not None:
            disk.max_pending = min(disk.max_pending, max(1, budget_bytes // 4))
        self._spaces: dict[str, _Space] = {}
        self._clock = 0
        self._hits: Counter[str] = Counter()
        self._served = self._asked = self._evicted = self._refused = 0
        self._latest = Stats(0, 0, budget_bytes, {}, 0, 0, 0, 0)

    # Asking ----------------------------------------------------------------------------------------------------------

    def match(self, tokens: Sequence[int], key: str, drafter: str = "") -> Match | None:
        """The longest stored prefix, at most len(tokens) - 1 tokens long so that one is left to forward."""
        begun = time.perf_counter()
        ids, space = as_tokens(tokens), self._space(key)
        self._clock += 1
        self._asked += len(ids)
        found, loaded = self._find_loaded(space, ids)
        if found is None or space.layout is None:
            self._hits["miss"] += 1
            self._note()
            return None
        layers = found.base.checkpoint.layers if found.base is not None and found.base.checkpoint is not None else ()
        blocks = [b for node in found.path for b in node.blocks]
        snapshot = space.layout.assemble(found.length, blocks, layers or ())
        for node in found.path:
            node.hits += 1
            node.used = self._clock
        if found.base is not None:
            found.base.restored += 1
            found.base.used = self._clock
        kind = "disk" if loaded else found.kind
        self._hits[kind] += 1
        self._served += found.length
        self._note()
        context = drafter_states.nearest(found.path[-1], found.length, drafter)
        return Match(found.length, snapshot, context, kind, (time.perf_counter() - begun) * 1e3)

    def peek(self, tokens: Sequence[int], key: str, drafter: str = "") -> Match | None:
        """`match` for somebody who only looks: it counts neither as asked nor as served."""
        counts = self._hits.copy(), self._served, self._asked
        found = self.match(tokens, key, drafter)
        self._hits, self._served, self._asked = counts
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
        shared = self._space(key).tree.walk(as_tokens(tokens)).length
        return plan_marks(len(tokens), match_length, min(shared, len(tokens) - 1), boundaries)

    def _find_loaded(self, space: _Space, ids: Tokens) -> tuple[_Found | None, bool]:
        """The best match with everything that it needs in memory, and whether the disk was read for it."""
        while True:
            found = self._find(space, ids)
            if found is None:
                return None, False
            cold = [b for node in found.path for b in node.blocks if not b.held]
            point = found.base.checkpoint if found.base is not None else None
            need = sum(b.weight for b in cold) + (point.weight if point is not None and not point.held else 0)
            if need == 0:
                return found, False
            keep = (found.base or found.path[-1]).lineage() + found.path[-1:]
            try:
                if not self._make_room(need, keep, short=False):
                    raise ValueError("no room to read it back")
                for block in cold:
                    block.load()
                if point is not None:
                    point.load()
                drafter_states.load(found.base or found.path[-1])
                return found, True
            except (OSError, ValueError):
                # Nothing below an edge that cannot be read is of use; what is above it still is.
                lost = next((n for n in found.path if not all(b.held for b in n.blocks)), found.base)
                assert lost is not None
                space.tree.remove(lost)

    def _find(self, space: _Space, ids: Tokens) -> _Found | None:
        path, length = space.tree.walk(ids)
        exact = length == len(ids)
        length = min(length, len(ids) - 1)
        path = [n for n in path if n.start < length]
        if space.layout is None or not path:
            return None
        last = path[-1]
        if space.layout.trimmable:
            kind = last.kind if length == last.end else "branch"
            return _Found(length, path, None, "exact" if exact else kind)
        best: _Found | None = None
        for i, node in enumerate(path):
            if node.checkpoint is not None and node.end <= length:
                best = _Found(node.end, path[: i + 1], node, node.kind)
        for node in islice(last.subtree(), drafter_states.SEARCHED):
            if node.checkpoint is not None and node.checkpoint.oldest <= length < node.end:
                best = _Found(length, path, node, "branch")
                break
        return best._replace(kind="exact") if best is not None and exact and best.length == length else best

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
        space = self._space(key)
        space.layout = layout = space.layout or Layout.of(snapshot)
        self._clock += 1
        ids = as_tokens(tokens[:length])
        path, shared = self._walk_alive(space, ids)
        held = drafting or {}
        need = sum(c.nbytes for c in held.values()) + sum(x.nbytes for x in snapshot.layers if x.kind != "append")
        new = layout.block_bytes(snapshot, length - shared)
        fresh = length < SHORT and not any(n.hits for n in path)
        spare = self._most - sum(n.nbytes for n in path) - need
        if layout.trimmable and 0 < spare < new:
            # The head of a prompt that is too long for the cache is better than nothing of it.
            ids = ids[: shared + (length - shared) * spare // new]
            held, new = {}, layout.block_bytes(snapshot, len(ids) - shared)
        if len(ids) <= shared < length or not self._make_room(new + need, path, short=fresh):
            self._refused += 1
            self._note()
            return False
        node = space.tree.insert(ids)
        if shared < node.end:
            node.blocks = layout.cut(snapshot, shared, node.end)
        if not layout.trimmable and not (node.checkpoint is not None and node.checkpoint.held):
            node.checkpoint = layout.checkpoint(snapshot)
        for name, context in held.items():
            drafter_states.add(node, name, context)
        node.kind, node.used = kind, self._clock
        # Evaluated soon, so that the lazy copies do not keep the buffers alive that they are taken from.
        point = node.checkpoint.arrays() if node.checkpoint is not None else []
        mx.async_eval([b.arrays for b in node.blocks], point, [drafter_states.arrays_of(c) for c in held.values()])
        if kind == "turn" and self.disk is not None:
            self.disk.keep(key, layout, node, space.ms_per_token)
        self._note()
        return True

    def _walk_alive(self, space: _Space, ids: Tokens) -> tuple[list[Node], int]:
        """The path of `ids`, after cutting off what only existed in a file that is gone."""
        while True:
            path, shared = space.tree.walk(ids)
            dead = next((n for n in path if any(not b.held and not b.backed for b in n.blocks)), None)
            if dead is None:
                return path, shared
            space.tree.remove(dead)

    def _make_room(self, need: int, keep: Iterable[Node], *, short: bool) -> bool:
        """Give up the least valuable until `need` more bytes fit; `keep` stays.

        Short prefixes that nobody came back for push out only their like, and a part of the budget is left to them.
        """
        if self.nbytes + need <= self._most and self._latest.nodes < MAX_NODES:
            return True
        held = list(keep)
        kept = {id(n) for n in held}
        if need + sum(n.nbytes for n in held) > self._most:
            return False
        while True:
            surveys = [(s, survey(s.tree, kept, self._clock, s.ms_per_token)) for s in self._spaces.values()]
            total = sum(x.nbytes for _, x in surveys)
            probation = sum(x.probation for _, x in surveys)
            crowd = sum(x.nodes for _, x in surveys) - MAX_NODES
            # Some more at once, or every request would have to look at all of them again.
            crowd += MAX_NODES // 16 if crowd > 0 else 0
            if short:
                excess, pool = total + need - self.budget, True
            else:
                excess = total - probation + need - self._most
                pool = excess <= 0
                excess = total + need - self.budget if pool else excess
            if excess <= 0 and crowd <= 0:
                return True
            given = [(s, v) for s, x in surveys for v in x.victims if v.probation is pool or (crowd > 0 >= excess)]
            given.sort(key=lambda p: (p[1].value, -p[1].node.end))
            if not given:
                return excess <= 0
            for space, victim in given:
                self._give_up(space, victim)
                excess -= victim.nbytes
                crowd -= 1
                if excess <= 0 and crowd <= 0:
                    break

    @property
    def _most(self) -> int:
        """What prefixes that are not on probation may take."""
        return self.budget * (PROBATION - 1) // PROBATION

    def _give_up(self, space: _Space, victim: Victim) -> None:
        node = victim.node
        if node.parent is None:
            return
        self._evicted += 1
        node.contexts = {}
        point = node.checkpoint
        if not victim.whole:
            node.checkpoint = point if point is not None and point.backed else None
            if node.checkpoint is not None:
                node.checkpoint.drop()
            elif not space.whole:
                node.kind = "branch"
            space.tree.tidy(node)
        elif all(b.backed for b in node.blocks) and (point is None or point.backed):
            for part in [*node.blocks, *([point] if point is not None else [])]:
                part.drop()
        else:
            self._cut_off(space, node)

    def _cut_off(self, space: _Space, node: Node) -> None:
        """Remove a node, and above it what no longer leads to anything that can be restored."""
        while node.parent is not None:
            parent = node.parent
            space.tree.remove(node)
            if space.whole or parent.children or parent.checkpoint is not None:
                break
            node = parent

    # Housekeeping ----------------------------------------------------------------------------------------------------

    def learn(self, key: str, tokens: int, ms: float) -> None:
        """A measured prefill: the rate behind `saved_ms` and behind the value of what is kept. Long ones count more,
        and the few tokens of a warm turn say nothing about a long prompt."""
        if tokens >= LEAST and ms > 0:
            space = self._space(key)
            space.measured = (space.measured[0] * MEMORY + tokens, space.measured[1] * MEMORY + ms)

    def saved_ms(self, key: str, tokens: int) -> float:
        """What prefilling `tokens` tokens would have cost at the measured rate; 0 when none was measured."""
        return self._space(key).ms_per_token * tokens

    def shed(self, level: Literal["warn", "critical"]) -> int:
        """Give memory back to the machine; returns the bytes freed.

        warn: all but the two deepest checkpoints of each path. critical: everything in memory; files stay.
        """
        before = self.nbytes
        for space in self._spaces.values():
            if level == "critical":
                for node in reversed(list(space.tree)):
                    self._give_up(space, Victim(node, True, node.nbytes, 0.0, False))
                continue
            for node in shallow(space.tree):
                self._give_up(space, Victim(node, False, node.extra_bytes, 0.0, False))
        mx.clear_cache()
        self._note()
        return before - self.nbytes

    def clear(self, *, disk: bool = False) -> None:
        """Forget everything in memory, and on request what is on disk too, written or about to be."""
        if disk and self.disk is not None:
            self.disk.clear()
        self._spaces.clear()
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

    def _note(self) -> None:
        """Take stock after a change; other threads read this and never walk a tree."""
        sizes = [n.nbytes for s in self._spaces.values() for n in s.tree]
        self._latest = Stats(
            entries=sum(1 for size in sizes if size),
            nbytes=sum(sizes),
            budget=self.budget,
            hits=dict(self._hits),
            tokens_served=self._served,
            tokens_asked=self._asked,
            evicted=self._evicted,
            refused=self._refused,
            nodes=len(sizes),
        )

    def _space(self, key: str) -> _Space:
        space = self._spaces.get(key)
        if space is None:
            space = self._spaces[key] = _Space()
            if self.disk is not None:
                space.layout, rate = self.disk.attach(key, space.tree)
                space.measured = (LEAST, rate * LEAST) if rate else (0.0, 0.0)
        return space


def as_tokens(tokens: Sequence[int]) -> Tokens:
    return np.asarray(tokens, dtype=np.int32)

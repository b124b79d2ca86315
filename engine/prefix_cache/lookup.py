"""Finding what is stored of a prompt, reading back what only a file holds, and putting the state together.

What does not add up is never served: it is a miss, and it goes. Knows no eviction beyond asking for room.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from engine.prefix_cache import drafter_states
from engine.prefix_cache.blocks import Layout
from engine.prefix_cache.eviction import Evictor, cut_off
from engine.prefix_cache.invariants import node_faults
from engine.prefix_cache.radix_tree import Hit, Node, Tokens, Tree
from engine.prefix_cache.space import Space, Spaces
from engine.prefix_cache.stats import Match

log = logging.getLogger("dspark.prefix")
OnFault = Callable[[str], None]


class Found(NamedTuple):
    """What a prompt can start from."""

    length: int
    path: list[Node]
    """Nodes whose blocks reach `length`."""
    base: Node | None
    """Whose checkpoint; None where all layers append."""
    kind: Hit

    @property
    def end(self) -> Node:
        """The deepest node that is needed."""
        return self.base or self.path[-1]


class Lookup:
    """Serves stored prefixes."""

    def __init__(self, spaces: Spaces, evictor: Evictor, on_fault: OnFault | None = None) -> None:
        self._spaces = spaces
        self._evictor = evictor
        self._on_fault = on_fault

    def match(self, space: Space, ids: Tokens, drafter: str) -> Match | None:
        """The longest stored prefix of at most len(ids) - 1 tokens."""
        begun = time.perf_counter()
        spaces = self._spaces
        spaces.clock += 1
        spaces.asked += len(ids)
        match = self._serve(space, ids, drafter, begun)
        spaces.hits[match.kind if match is not None else "miss"] += 1
        spaces.served += match.length if match is not None else 0
        return match

    def _serve(self, space: Space, ids: Tokens, drafter: str, begun: float) -> Match | None:
        layout = space.layout
        while layout is not None and (found := find(space.tree, layout, ids)) is not None:
            fault: tuple[Node, str] | None = None
            # In use until the state is put together: making room for what is on disk must not change what was found.
            with space.tree.pinned(found.end.lineage()):
                try:
                    loaded = self._load(found)
                except (OSError, ValueError):
                    loaded = None
                fault = _faulty(found, layout) if loaded is not None else None
                if loaded is not None and fault is None:
                    return self._assemble(layout, found, drafter, begun, "disk" if loaded else found.kind)
            if fault is not None:
                self._drop_unsound(space, *fault)
                return None
            # Nothing below an edge that cannot be read is of use; what is above it still is.
            cut_off(space, next((n for n in found.path if not all(b.held for b in n.blocks)), found.end))
        return None

    def _load(self, found: Found) -> bool:
        """Bring all that is needed into memory; whether the disk was read for it.

        Raises:
            OSError, ValueError: it cannot be read, or there is no room for it.
        """
        cold = [b for node in found.path for b in node.blocks if not b.held]
        point = found.base.checkpoint if found.base is not None else None
        need = sum(b.weight for b in cold) + (point.weight if point is not None and not point.held else 0)
        if not cold and (point is None or point.held):
            return False
        if not self._evictor.make_room(need):
            raise ValueError("no room to read it back")
        for block in cold:
            block.load()
        if point is not None:
            point.load()
        known = found.end.contexts
        drafter_states.load(found.end)
        # How much drafters knew is only seen now.
        if not self._evictor.make_room(0):
            found.end.contexts = known
        return True

    def _assemble(self, layout: Layout, found: Found, drafter: str, begun: float, kind: Hit) -> Match:
        base = found.base
        layers = base.checkpoint.layers if base is not None and base.checkpoint is not None else None
        blocks = [b for node in found.path for b in node.blocks]
        snapshot = layout.assemble(found.length, blocks, layers or ())
        for node in found.path:
            node.hits += 1
            node.used = self._spaces.clock
        if base is not None:
            base.restored += 1
            base.used = self._spaces.clock
        context = drafter_states.nearest(found.path[-1], found.length, drafter)
        return Match(found.length, snapshot, context, kind, (time.perf_counter() - begun) * 1e3)

    def _drop_unsound(self, space: Space, node: Node, fault: str) -> None:
        """A fault of this program, or of a file that it wrote: nothing that was built on it can be trusted."""
        sentence = f"A stored prefix of {node.end} tokens does not add up and was dropped: {fault}."
        log.error("%s", sentence)
        self._spaces.unsound += 1
        for below in node.subtree():
            point = [below.checkpoint] if below.checkpoint is not None else []
            for part in [*below.blocks, *point]:
                if part.source is not None:
                    part.source.discard()
        cut_off(space, node)
        if self._on_fault is not None:
            self._on_fault(sentence)


def find(tree: Tree, layout: Layout, ids: Tokens) -> Found | None:
    """The longest prefix that can be restored, with one token left to read; changes nothing."""
    path, length = tree.walk(ids)
    exact = length == len(ids)
    length = min(length, len(ids) - 1)
    path = [n for n in path if n.start < length]
    if not path:
        return None
    last = path[-1]
    if layout.trimmable:
        kind = last.kind if length == last.end else "branch"
        return Found(length, path, None, "exact" if exact else kind)
    best: Found | None = None
    for i, node in enumerate(path):
        if node.checkpoint is not None and node.end <= length:
            best = Found(node.end, path[: i + 1], node, node.kind)
    for node in islice(last.subtree(), drafter_states.SEARCHED):
        if node.checkpoint is not None and node.checkpoint.oldest <= length < node.end:
            best = Found(length, path, node, "branch")
            break
    return best._replace(kind="exact") if best is not None and exact and best.length == length else best


def _faulty(found: Found, layout: Layout) -> tuple[Node, str] | None:
    """The first node of what was found that must not be served, and why."""
    for node in found.end.lineage():
        for fault in node_faults(node, layout):
            return node, fault
    return None

"""Keeping a state: what of it is new, room for that, and then the insertion, in this order.

Copies only what its path does not hold yet. What goes for it is decided elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from engine.prefix_cache import drafter_states
from engine.prefix_cache.blocks import Block, Layout
from engine.prefix_cache.eviction import SHORT, Evictor, worth
from engine.prefix_cache.invariants import cover
from engine.prefix_cache.radix_tree import Hit, Node, Tokens
from engine.prefix_cache.space import Space, Spaces

if TYPE_CHECKING:
    from engine.drafters.base import ContextSnapshot
    from engine.kv_cache.base import Snapshot

log = logging.getLogger("dspark.prefix")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be kept, as the tree was when it was made. Its numbers decide how much room is made, never where
    anything is put."""

    ids: Tokens
    path: list[Node]
    """Nodes that the new one will share; they must still be there when it comes."""
    need: int
    """Bytes that come on top."""
    drafting: Mapping[str, ContextSnapshot]
    newcomer: float | None
    """See `Evictor.make_room`."""


class Insertion:
    """Puts states into the trees."""

    def __init__(self, spaces: Spaces, evictor: Evictor) -> None:
        self._spaces = spaces
        self._evictor = evictor

    def put(
        self, key: str, ids: Tokens, snapshot: Snapshot, drafting: Mapping[str, ContextSnapshot], kind: Hit
    ) -> Node | None:
        """The node that holds the state now; None when there was no room for it."""
        space = self._space(key, Layout.of(snapshot))
        self._spaces.clock += 1
        plan = self._plan(space, ids, snapshot, drafting)
        if plan is None:
            return None
        # Making room changes the tree. Two things keep that apart from what is inserted: the path is pinned, so that
        # nothing of what the plan counted on goes or is joined to something else that goes; and the tree is walked
        # again for the insertion, which cuts the blocks that this walk asks for. Blocks that were cut from where an
        # earlier walk ended once left a hole, and every later hit read past it.
        with space.tree.pinned(plan.path):
            if not self._evictor.make_room(plan.need, newcomer=plan.newcomer):
                return None
            return self._insert(space, plan, snapshot, kind)

    def _space(self, key: str, layout: Layout) -> Space:
        space = self._spaces.get(key)
        if space.layout is not None and space.layout != layout:
            log.error("states under the key %s have changed their layout; what was kept under it is dropped", key)
            self._spaces.unsound += 1
            space = self._spaces.by_key[key] = Space(measured=space.measured)
        space.layout = layout
        return space

    def _plan(
        self, space: Space, ids: Tokens, snapshot: Snapshot, drafting: Mapping[str, ContextSnapshot]
    ) -> Plan | None:
        """None for what will not fit whatever goes."""
        assert space.layout is not None
        path, shared = _walk_alive(space, ids)
        length = len(ids)
        need = sum(c.nbytes for c in drafting.values()) + sum(x.nbytes for x in snapshot.layers if x.kind != "append")
        new = space.layout.block_bytes(snapshot, length - shared)
        fresh = length < SHORT and not any(n.hits for n in path)
        spare = self._evictor.most - sum(n.nbytes for n in path) - need
        if space.whole and 0 < spare < new:
            # The head of a prompt that is too long for the cache is better than nothing of it.
            ids = ids[: shared + (length - shared) * spare // new]
            if len(ids) <= shared:
                return None
            drafting, need, new = {}, 0, space.layout.block_bytes(snapshot, len(ids) - shared)
        newcomer = worth(length - shared, new + need, space.ms_per_token) if fresh else None
        return Plan(ids, path, new + need, drafting, newcomer)

    def _insert(self, space: Space, plan: Plan, snapshot: Snapshot, kind: Hit) -> Node:
        layout = space.layout
        assert layout is not None
        made = None if layout.trimmable else layout.checkpoint(snapshot)

        def fill(start: int, stop: int) -> list[Block]:
            blocks = cover(layout.cut(snapshot, start, stop), stop - start, layout)
            # Evaluated soon, so that the lazy copies do not keep the buffers alive that they are taken from.
            mx.async_eval([b.arrays for b in blocks])
            return blocks

        mx.async_eval(
            made.arrays() if made is not None else [], [drafter_states.arrays_of(c) for c in plan.drafting.values()]
        )
        node = space.tree.insert(plan.ids, fill)
        if made is not None and (node.checkpoint is None or not node.checkpoint.held):
            made.source = node.checkpoint.source if node.checkpoint is not None else None
            node.checkpoint = made
        for name, context in plan.drafting.items():
            drafter_states.add(node, name, context)
        node.kind, node.used = kind, self._spaces.clock
        return node


def _walk_alive(space: Space, ids: Tokens) -> tuple[list[Node], int]:
    """The path of `ids`, after cutting off what only existed in a file that is gone."""
    while True:
        path, shared = space.tree.walk(ids)
        dead = next((n for n in path if any(not b.held and not b.backed for b in n.blocks)), None)
        if dead is None:
            return path, shared
        space.tree.remove(dead)

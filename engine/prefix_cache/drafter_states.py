"""Drafter contexts beside the states of the tree: which one serves, which ones are superseded."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.drafters.base import ContextSnapshot
    from engine.prefix_cache.radix_tree import Node

SEARCHED = 256
"""Nodes looked at below a match."""


def nearest(last: Node, length: int, drafter: str) -> ContextSnapshot | None:
    """The shortest context of this drafter that covers `length` tokens and shares them. `last`: where a match ends."""
    nodes = islice(last.subtree(), SEARCHED)
    held = [n.contexts[drafter] for n in nodes if n.end >= length and drafter in n.contexts]
    return min(held, key=lambda c: c.length, default=None)


def add(node: Node, name: str, context: ContextSnapshot) -> None:
    """Keep a context; it replaces shorter ones on its path that can be cut out of it."""
    node.contexts[name] = context
    oldest = getattr(context, "trimmable_from", context.length)
    for above in node.lineage()[:-1]:
        if name in above.contexts and oldest <= above.end:
            del above.contexts[name]


def load(node: Node) -> None:
    """What drafters knew at the end of a node that was read back from disk."""
    point = node.checkpoint
    source = point.source if point is not None else node.blocks[-1].source if node.blocks else None
    if source is not None and source.end == node.end:
        read = {name: held for name, held in source.contexts().items() if held.length == node.end}
        node.contexts = {**read, **node.contexts}


def arrays_of(context: ContextSnapshot) -> list[Any]:
    """Arrays that a context brings along; host-side contexts have none."""
    arrays = cast("Callable[[], list[Any]] | None", getattr(context, "arrays", None))
    return arrays() if arrays is not None else []

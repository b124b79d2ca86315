"""A radix tree over token ids: where prefixes meet and where they part.

Edges are compressed (one int32 array each). A node covers the positions [start, end) of every prefix below it and may
hold what was computed for them. Two things can not happen to it, whoever calls in whatever order: an edge in the tree
without the blocks that cover it (`insert` asks for the blocks of exactly the edge that it adds, at that moment), and a
node in use that goes or is joined to another (`pinned`). Knows structure only: what a block or a checkpoint is made of
is another file's matter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from engine.drafters.base import ContextSnapshot
    from engine.prefix_cache.blocks import Block, Checkpoint

Tokens = npt.NDArray[np.int32]
Hit = Literal["miss", "exact", "boundary", "anchor", "rung", "branch", "turn", "disk"]
"""What served a request: see engine.types.Prefilled."""
Fill = Callable[[int, int], "list[Block]"]
"""(start, stop) -> blocks that cover these positions."""


@dataclass(eq=False, slots=True)
class Node:
    """Tokens [start, end) of a path, with the memory of these tokens and of the state after the last of them."""

    tokens: Tokens
    start: int
    parent: Node | None = None
    children: dict[int, Node] = field(default_factory=dict[int, "Node"])
    blocks: list[Block] = field(default_factory=list["Block"])
    """Cover the edge from `start`, or are empty where the model has no layer that appends."""
    checkpoint: Checkpoint | None = None
    contexts: dict[str, ContextSnapshot] = field(default_factory=dict[str, "ContextSnapshot"])
    kind: Hit = "branch"
    """Why prefill or the turn ended here; `branch` for a node that only divides."""
    hits: int = 0
    """Restores that used this edge."""
    restored: int = 0
    """Restores that started from this node's checkpoint."""
    used: int = 0
    """Clock of the last use."""
    pins: int = 0
    """Who relies on this node being there as it is; see `Tree.pinned`."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    @property
    def nbytes(self) -> int:
        return self.block_bytes + self.extra_bytes

    @property
    def block_bytes(self) -> int:
        return sum([b.nbytes for b in self.blocks])

    @property
    def extra_bytes(self) -> int:
        held = 0 if self.checkpoint is None else self.checkpoint.nbytes
        return held + sum([c.nbytes for c in self.contexts.values()]) if self.contexts else held

    def lineage(self) -> list[Node]:
        """From the first edge below the root to this node."""
        out: list[Node] = []
        node: Node = self
        while node.parent is not None:
            out.append(node)
            node = node.parent
        return out[::-1]

    def subtree(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()


class Walk(NamedTuple):
    """How far a sequence follows the tree. `path[-1]` may be followed only in part (length < path[-1].end)."""

    path: list[Node]
    length: int


def common_prefix(a: Tokens, b: Tokens) -> int:
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if differs.size else n


class Tree:
    """All prefixes of one state key."""

    def __init__(self) -> None:
        self.root: Node = Node(np.zeros(0, dtype=np.int32), 0)

    def __iter__(self) -> Iterator[Node]:
        """All nodes but the root, parents first."""
        return (n for n in self.root.subtree() if n.parent is not None)

    def walk(self, tokens: Tokens) -> Walk:
        path: list[Node] = []
        at, node = 0, self.root
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None:
                break
            shared = common_prefix(child.tokens, tokens[at:])
            path.append(child)
            at += shared
            if shared < len(child.tokens):
                break
            node = child
        return Walk(path, at)

    def insert(self, tokens: Tokens, fill: Fill) -> Node:
        """The node that ends exactly at len(tokens) >= 1; divides an edge or adds one as needed.

        `fill` is asked for the blocks of the edge that is added, if one is, before anything changes: where that edge
        begins is what the tree says now, never what somebody found earlier.
        """
        path, length = self.walk(tokens)
        node = path[-1] if path else self.root
        blocks = fill(length, len(tokens)) if length < len(tokens) else []
        if length < node.end:
            node = self.split(node, length)
        if length < len(tokens):
            leaf: Node = Node(tokens[length:].copy(), length, node, blocks=blocks)
            node.children[int(tokens[length])] = leaf
            node = leaf
        return node

    @contextlib.contextmanager
    def pinned(self, nodes: Iterable[Node]) -> Generator[None]:
        """Inside, these nodes neither go nor change their extent, unless the caller does it."""
        held = list(nodes)
        for node in held:
            node.pins += 1
        try:
            yield
        finally:
            for node in held:
                node.pins -= 1
            # What could not be joined meanwhile.
            for node in reversed(held):
                self.tidy(node)

    def split(self, node: Node, at: int) -> Node:
        """Divide an edge at absolute position `at`; returns the new upper node. What belongs to the end stays below."""
        assert node.parent is not None
        assert node.start < at < node.end
        cut = at - node.start
        upper: Node = Node(node.tokens[:cut].copy(), node.start, node.parent, hits=node.hits, used=node.used)
        upper.blocks, node.blocks = divide(node.blocks, cut)
        node.parent.children[int(upper.tokens[0])] = upper
        node.tokens = node.tokens[cut:].copy()
        node.start, node.parent = at, upper
        upper.children = {int(node.tokens[0]): node}
        return upper

    def remove(self, node: Node) -> int:
        """Cut off a node with all below it; returns the bytes that they held."""
        assert node.parent is not None
        gone = list(node.subtree())
        if any(n.pins for n in gone):
            raise RuntimeError("a node that is in use was about to be removed from the prefix cache")
        parent = node.parent
        del parent.children[int(node.tokens[0])]
        for n in gone:
            n.parent = None
        self.tidy(parent)
        return sum(n.nbytes for n in gone)

    def tidy(self, node: Node) -> None:
        """Join an edge that no longer divides anything with the one below it; drop one that holds nothing."""
        parent = node.parent
        if parent is None or node.pins or node.checkpoint is not None or node.contexts:
            return
        if not node.children and not node.blocks:
            self.remove(node)
        elif len(node.children) == 1 and node.kind == "branch":
            (below,) = node.children.values()
            if below.pins:
                return
            below.tokens = np.concatenate([node.tokens, below.tokens])
            below.start, below.parent = node.start, parent
            below.blocks = node.blocks + below.blocks
            parent.children[int(below.tokens[0])] = below
            node.parent = None


def divide(blocks: list[Block], cut: int) -> tuple[list[Block], list[Block]]:
    """Blocks of the first `cut` tokens and of the rest."""
    upper: list[Block] = []
    for i, block in enumerate(blocks):
        if cut == 0:
            return upper, blocks[i:]
        if cut < block.length:
            first, rest = block.split(cut)
            return [*upper, first], [rest, *blocks[i + 1 :]]
        upper.append(block)
        cut -= block.length
    return upper, []

"""What the parts of the prefix cache share: one tree a state key, the clock, the counts, the budget.

Knows how to weigh what is held, not what is worth holding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.prefix_cache.blocks import Layout
from engine.prefix_cache.invariants import node_faults
from engine.prefix_cache.radix_tree import Node, Tree
from engine.prefix_cache.stats import Stats

if TYPE_CHECKING:
    from engine.prefix_cache.disk import DiskTier

MEMORY = 0.8
"""How much of the measured prefill rate each new one leaves."""
LEAST = 32
"""Fewer tokens are no measurement of a rate."""


@dataclass(eq=False, slots=True)
class Space:
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

    def learn(self, tokens: int, ms: float) -> None:
        """A measured prefill. Long ones count more; the few tokens of a warm turn say nothing about a long prompt."""
        if tokens >= LEAST and ms > 0:
            self.measured = (self.measured[0] * MEMORY + tokens, self.measured[1] * MEMORY + ms)


@dataclass(eq=False, slots=True)
class Spaces:
    """Every state key's space under one byte budget."""

    budget: int
    disk: DiskTier | None = None
    by_key: dict[str, Space] = field(default_factory=dict[str, Space])
    clock: int = 0
    """Grows with every request."""
    hits: Counter[str] = field(default_factory=Counter[str])
    served: int = 0
    asked: int = 0
    evicted: int = 0
    refused: int = 0
    unsound: int = 0

    def get(self, key: str) -> Space:
        """The space of a key; what files hold of it is put into its tree when it is first asked for."""
        space = self.by_key.get(key)
        if space is None:
            space = self.by_key[key] = Space()
            if self.disk is not None:
                space.layout, rate = self.disk.attach(key, space.tree)
                space.measured = (LEAST, rate * LEAST) if rate else (0.0, 0.0)
        return space

    def faults(self, noted: int) -> list[str]:
        """Of the whole cache. noted: the bytes that others are told it holds."""
        out: list[str] = []
        for space in self.by_key.values():
            for node in space.tree:
                told = ["there is no layout"] if space.layout is None else list(node_faults(node, space.layout))
                told += [f"{node.pins} still rely on it"] if node.pins else []
                out += [f"tokens {node.start} to {node.end}: {fault}" for fault in told]
        nbytes = self.weigh()[0]
        if nbytes != noted:
            out.append(f"{nbytes} bytes are held and {noted} are told")
        if nbytes > self.budget:
            out.append(f"{nbytes} bytes are held of {self.budget}")
        return out

    def nodes(self) -> Iterator[Node]:
        return (node for space in self.by_key.values() for node in space.tree)

    def weigh(self) -> tuple[int, int]:
        """Bytes held and nodes, counted now: what was noted before a change says nothing after it."""
        sizes = [node.nbytes for node in self.nodes()]
        return sum(sizes), len(sizes)

    def stats(self) -> Stats:
        sizes = [node.nbytes for node in self.nodes()]
        return Stats(
            entries=sum(1 for size in sizes if size),
            nbytes=sum(sizes),
            budget=self.budget,
            hits=dict(self.hits),
            tokens_served=self.served,
            tokens_asked=self.asked,
            evicted=self.evicted,
            refused=self.refused,
            nodes=len(sizes),
            unsound=self.unsound,
        )

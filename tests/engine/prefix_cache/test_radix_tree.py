"""The radix tree against a plain dictionary of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.prefix_cache.radix_tree import Node, Tree, divide
from tests.cases import examples

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@dataclass
class Slab:
    """Stands for a block: remembers which tokens it was made for."""

    tokens: tuple[int, ...]
    nbytes: int = 1

    @property
    def length(self) -> int:
        return len(self.tokens)

    def split(self, at: int) -> tuple[Slab, Slab]:
        return Slab(self.tokens[:at]), Slab(self.tokens[at:])


@dataclass
class Point:
    nbytes: int = 1
    oldest: int = 0


def slabs(tokens: Any, start: int, stop: int) -> Any:
    """Two, so that divisions also fall between them."""
    half = (start + stop) // 2
    return [Slab(tuple(int(t) for t in tokens[a:b])) for a, b in ((start, half), (half, stop)) if a < b]


def shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def ids(tokens: Any) -> Any:
    return np.asarray(tokens, dtype=np.int32)


class TreeAgainstDictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self.kept: dict[tuple[int, ...], None] = {}

    def path(self, node: Node) -> tuple[int, ...]:
        return tuple(int(t) for n in node.lineage() for t in n.tokens)

    @rule(tokens=SEQUENCES, point=st.booleans())
    def insert(self, tokens: list[int], point: bool) -> None:
        before = self.tree.walk(ids(tokens)).length
        asked: list[int] = []

        def fill(start: int, stop: int) -> Any:
            asked.append(start)
            return slabs(tokens, start, stop)

        node = self.tree.insert(ids(tokens), fill)
        assert node.end == len(tokens)
        assert asked == ([before] if before < len(tokens) else [])
        if point:
            node.checkpoint = Point()  # pyright: ignore[reportAttributeAccessIssue]
        self.kept[tuple(tokens)] = None

    @rule(tokens=SEQUENCES)
    def match(self, tokens: list[int]) -> None:
        path, length = self.tree.walk(ids(tokens))
        assert length == max((shared(tuple(tokens), k) for k in self.kept), default=0)
        assert [t for n in path for t in n.tokens][:length] == tokens[:length]

    @precondition(lambda self: any(True for _ in self.tree))
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(list(self.tree)), label="node")
        path, start = self.path(node), node.start
        self.tree.remove(node)
        kept: dict[tuple[int, ...], None] = {}
        for k in self.kept:
            cut = k[:start] if shared(k, path) > start else k
            if cut:
                kept[cut] = None
        self.kept = kept

    @precondition(lambda self: any(n.checkpoint for n in self.tree))
    @rule(data=st.data())
    def shed(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from([n for n in self.tree if n.checkpoint]), label="node")
        node.checkpoint = None
        self.tree.tidy(node)

    @invariant()
    def sound(self) -> None:
        for node in self.tree:
            assert node.parent is not None
            assert len(node.tokens) > 0
            assert node.start == node.parent.end
            assert node.parent.children[int(node.tokens[0])] is node
            assert tuple(t for b in node.blocks for t in b.tokens) == tuple(node.tokens)  # pyright: ignore[reportAttributeAccessIssue]
        paths = [self.path(n) for n in self.tree if not n.children]
        for k in self.kept:
            assert any(p[: len(k)] == k for p in paths)
        for p in paths:
            assert any(k[: len(p)] == p for k in self.kept)


TestTree = TreeAgainstDictionary.TestCase
TestTree.settings = examples(60, stateful_step_count=25)


def test_divide_between_and_inside_blocks() -> None:
    blocks: Any = [Slab((1, 2)), Slab((3, 4, 5))]
    for cut in range(6):
        upper, lower = divide(blocks, cut)
        assert [t for b in upper for t in b.tokens] == [1, 2, 3, 4, 5][:cut]  # pyright: ignore[reportAttributeAccessIssue]
        assert [t for b in lower for t in b.tokens] == [1, 2, 3, 4, 5][cut:]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_division_without_purpose_is_joined_again() -> None:
    tree = Tree()
    for tail in ([7], [8]):
        tokens = [1, 2, 3, *tail]
        node = tree.insert(ids(tokens), lambda start, stop, ids=tokens: slabs(ids, start, stop))
    assert len(list(tree)) == 3
    tree.remove(node)
    (only,) = tree
    assert list(only.tokens) == [1, 2, 3, 7]

"""What must be true of every node of the prefix cache, as sentences about what is not.

A node that fails here would be served as a state that no prompt has. Looks at lengths and sizes; evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.prefix_cache.blocks import TOKEN_AXIS, Block, Checkpoint, Layout
from engine.prefix_cache.radix_tree import Node


def node_faults(node: Node, layout: Layout) -> Iterator[str]:
    """Whatever does not add up about one node; nothing for a sound one."""
    parent = node.parent
    if parent is None or not len(node.tokens) or parent.children.get(int(node.tokens[0])) is not node:
        yield "it does not hang in its tree"
    elif node.start != parent.end:
        yield f"its edge begins at {node.start} below one that ends at {parent.end}"
    yield from _cover_faults(node.blocks, len(node.tokens), layout)
    if node.checkpoint is not None:
        yield from _point_faults(node.checkpoint, node.end, layout)
    for name, context in node.contexts.items():
        if context.length != node.end:
            yield f"what {name} knew covers {context.length} tokens, not {node.end}"


def cover(blocks: list[Block], tokens: int, layout: Layout) -> list[Block]:
    """The same blocks.

    Raises:
        ValueError: they do not cover so many tokens exactly.
    """
    for fault in _cover_faults(blocks, tokens, layout):
        raise ValueError(fault)
    return blocks


def _cover_faults(blocks: Sequence[Block], tokens: int, layout: Layout) -> Iterator[str]:
    covered = sum(b.length for b in blocks)
    if covered != (tokens if layout.groups else 0):
        yield f"blocks of {covered} tokens on an edge of {tokens}"
    for block in blocks:
        if block.length < 1 or block.offset < 0:
            yield f"a block of {block.length} tokens from {block.offset}"
        if not block.held:
            continue
        shapes = [(x.shape[0], x.shape[TOKEN_AXIS + 1]) for x in block.arrays]
        if shapes != [(len(group), block.length) for group in layout.groups]:
            yield f"arrays of (layers, tokens) {shapes} in a block of {block.length} tokens"
        if block.nbytes != sum(x.nbytes for x in block.arrays):
            yield f"a block of {sum(x.nbytes for x in block.arrays)} bytes is counted as {block.nbytes}"


def _point_faults(point: Checkpoint, end: int, layout: Layout) -> Iterator[str]:
    if point.length != end:
        yield f"a checkpoint of {point.length} tokens at {end}"
    if point.layers is None:
        return
    kinds = [(i, kind, end) for i, kind in enumerate(layout.kinds) if kind != "append"]
    if [(i, x.kind, x.length) for i, x in point.layers] != kinds:
        yield f"a checkpoint of other layers or lengths than {kinds}"
    if point.nbytes != sum(x.nbytes for _, x in point.layers):
        yield f"a checkpoint of {sum(x.nbytes for _, x in point.layers)} bytes is counted as {point.nbytes}"

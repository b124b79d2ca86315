"""What is worth keeping, and where prefill should pause to keep it.

Pure functions over numbers and nodes: no array is touched here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.prefix_cache.radix_tree import Hit, Node, Tree

SHORT = 1024
"""A prefix below this that nobody came back for is on probation."""
PROBATION = 8
"""One part in so many of the budget is for prefixes on probation, and never more when space is short."""
HALF_LIFE = 64
"""Requests after which an unused prefix counts half."""
ANCHOR_GAIN = 16
"""Tokens that a divergence point must save before it earns a checkpoint."""
FIRST_RUNG = 2048
CONTEXT_SHARE = 0.05
GUESS_MS = 1.0
"""Per token, before a prefill was measured: only the comparison of nodes matters then."""


class Mark(NamedTuple):
    """A prompt length at which prefill stops to keep a checkpoint, and why."""

    at: int
    kind: Hit


def plan_marks(
    length: int, match_length: int, shared: int, boundaries: Sequence[int], rungs: bool = True
) -> list[Mark]:
    """Marks strictly between match_length and length, ascending.

    `shared` is how far the prompt follows the tree without regard to checkpoints: when that is further than what could
    be restored, the next prompt that parts there should find a checkpoint (an anchor).
    """
    found: dict[int, Hit] = {}
    if rungs:
        step = FIRST_RUNG
        while step < length:
            found[step] = "rung"
            step *= 2
    if shared - match_length >= ANCHOR_GAIN:
        found[shared] = "anchor"
    for at in boundaries:
        found[at] = "boundary"
    if not any(match_length < at < length for at in boundaries):
        # An identical repeat still needs one token to forward.
        found[length - 1] = "boundary"
    return [Mark(at, found[at]) for at in sorted(found) if match_length < at < length]


def reuse(hits: int, used: int, now: int, short: bool) -> float:
    """Expected uses, decaying with the requests since the last one."""
    prior = 0.1 if short and hits == 0 else 1.0
    return (hits + prior) * 0.5 ** ((now - used) / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class Victim:
    """Something that can be given up: a whole leaf, or only the checkpoint and contexts of a node that others need."""

    node: Node
    whole: bool
    nbytes: int
    value: float
    probation: bool


@dataclass(slots=True)
class Survey:
    """What one tree holds and what of it could be given up."""

    victims: list[Victim] = field(default_factory=list[Victim])
    nbytes: int = 0
    probation: int = 0
    """Bytes of short prefixes that nobody came back for."""
    nodes: int = 0


def survey(tree: Tree, keep: set[int], now: int, ms_per_token: float) -> Survey:
    """`keep`: ids of nodes that must stay."""
    out = Survey()
    rate = ms_per_token or GUESS_MS
    total: dict[int, int] = {}
    short: dict[int, bool] = {}
    for node in reversed(list(tree)):
        held = node.nbytes
        below = sum(total[id(c)] for c in node.children.values())
        probation = node.end < SHORT and node.hits == 0 and all(short[id(c)] for c in node.children.values())
        total[id(node)], short[id(node)] = held + below, probation
        out.nodes += 1
        out.nbytes += held
        out.probation += held if probation else 0
        if id(node) in keep or held == 0:
            continue
        tokens = node.end - _restorable_before(node)
        if below == 0:
            worth = tokens * rate * reuse(node.hits, node.used, now, probation)
            out.victims.append(Victim(node, True, held, worth / held, probation))
        elif node.extra_bytes:
            # Without a checkpoint a context alone saves a drafter's warm-up, not a prefill.
            saved = tokens if node.checkpoint is not None else len(node.tokens) * CONTEXT_SHARE
            worth = saved * rate * reuse(node.restored, node.used, now, probation)
            out.victims.append(Victim(node, False, node.extra_bytes, worth / node.extra_bytes, probation))
    return out


def shallow(tree: Tree) -> list[Node]:
    """Nodes whose checkpoint is not among the two deepest of any path through them."""
    below: dict[int, int] = {}
    out: list[Node] = []
    for node in reversed(list(tree)):
        counts = [below[id(c)] + (c.checkpoint is not None and c.checkpoint.held) for c in node.children.values()]
        below[id(node)] = min(counts, default=0)
        if node.checkpoint is not None and node.checkpoint.held and below[id(node)] >= 2:
            out.append(node)
    return out


def _restorable_before(node: Node) -> int:
    """Length from which prefill would start if this node were gone."""
    if node.checkpoint is None:
        return node.start
    above = node.parent
    while above is not None and above.parent is not None:
        if above.checkpoint is not None:
            return above.end
        above = above.parent
    return 0


def default_budget(working_set: int, free: int) -> int:
    """Bytes for the cache on a machine with this working set and this much free beside the model."""
    return max(64 << 20, min(working_set * 15 // 100, free // 2))

"""What is worth keeping, and what goes when something needs its room.

What is worth least a byte goes first, wherever it is. Looks at numbers and at the shape of the trees; of an array it
knows only that it can be let go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.prefix_cache.radix_tree import Node, Tree
from engine.prefix_cache.space import Space, Spaces

SHORT = 1024
"""A prefix below this that nobody came back for is on probation."""
PROBATION = 8
"""One part in so many of the budget is what prefixes on probation may take and still count as much as any other."""
UNPROVEN = 0.1
"""What they count beyond that, and what a new one counts that wants the room of others."""
MAX_NODES = 1024
"""Keeps the number of live buffers far from the limit that Metal has per process."""
HALF_LIFE = 64
"""Requests after which an unused prefix counts half."""
CONTEXT_SHARE = 0.05
GUESS_MS = 1.0
"""Per token, before a prefill was measured: only the comparison of nodes matters then."""


def reuse(hits: int, used: int, now: int) -> float:
    """Expected uses, decaying with the requests since the last one."""
    return (hits + 1.0) * 0.5 ** ((now - used) / HALF_LIFE)


def worth(tokens: int, nbytes: int, ms_per_token: float) -> float:
    """Milliseconds a byte that keeping these tokens saves each time that they are used."""
    return tokens * (ms_per_token or GUESS_MS) / max(1, nbytes)


@dataclass(frozen=True, slots=True)
class Victim:
    """Something that can be given up: a whole leaf, or only the checkpoint and contexts of a node that others need."""

    node: Node
    whole: bool
    value: float
    """Milliseconds a byte that keeping it is expected to save."""
    probation: bool


@dataclass(slots=True)
class Survey:
    """What one tree holds and what of it could be given up."""

    victims: list[Victim] = field(default_factory=list[Victim])
    nbytes: int = 0
    probation: int = 0
    """Bytes of short prefixes that nobody came back for."""
    pinned: int = 0
    """Bytes of nodes in use."""
    nodes: int = 0


def survey(tree: Tree, now: int, ms_per_token: float) -> Survey:
    out = Survey()
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
        out.pinned += held if node.pins else 0
        if node.pins or held == 0:
            continue
        tokens = node.end - _restorable_before(node)
        if below == 0:
            value = worth(tokens, held, ms_per_token) * reuse(node.hits, node.used, now)
            out.victims.append(Victim(node, True, value, probation))
        elif node.extra_bytes:
            # Without a checkpoint a context alone saves a drafter's warm-up, not a prefill.
            saved = tokens if node.checkpoint is not None else len(node.tokens)
            share = 1.0 if node.checkpoint is not None else CONTEXT_SHARE
            value = share * worth(saved, node.extra_bytes, ms_per_token) * reuse(node.restored, node.used, now)
            out.victims.append(Victim(node, False, value, probation))
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


class Evictor:
    """Gives up what is worth least, never what is pinned."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    @property
    def most(self) -> int:
        """What one prompt may take: a part of the budget is left to others."""
        return self._spaces.budget * (PROBATION - 1) // PROBATION

    def make_room(self, need: int, *, newcomer: float | None = None) -> bool:
        """Give up the least valuable until `need` more bytes fit.

        newcomer: for a short prefix that nobody came back for what it is worth, when there were only it to keep; it
        pushes out its like, and what has become worth less.
        """
        spaces = self._spaces
        if need + sum(n.nbytes for n in spaces.nodes() if n.pins) > self.most:
            return False
        nbytes, nodes = spaces.weigh()
        if nbytes + need <= spaces.budget and nodes < MAX_NODES:
            return True
        while True:
            surveys = [(s, survey(s.tree, spaces.clock, s.ms_per_token)) for s in spaces.by_key.values()]
            excess = sum(x.nbytes for _, x in surveys) + need - spaces.budget
            crowd = sum(x.nodes for _, x in surveys) - MAX_NODES
            # Some more at once, or every request would have to look at all of them again.
            crowd += MAX_NODES // 16 if crowd > 0 else 0
            if excess <= 0 and crowd <= 0:
                return True
            victims = self._victims(surveys, None if crowd > 0 >= excess else newcomer)
            if not victims:
                return excess <= 0
            for space, victim in victims:
                excess -= self._give_up(space, victim.node, whole=victim.whole)
                crowd -= 1
                if excess <= 0 and crowd <= 0:
                    break

    def _victims(self, surveys: list[tuple[Space, Survey]], newcomer: float | None) -> list[tuple[Space, Victim]]:
        """Who may go, the least valuable first."""
        crowded = sum(x.probation for _, x in surveys) > self._spaces.budget // PROBATION
        valued = [
            (v.value * (UNPROVEN if v.probation and crowded else 1.0), -v.node.end, s, v)
            for s, x in surveys
            for v in x.victims
        ]
        if newcomer is not None:
            valued = [item for item in valued if item[3].probation or item[0] < newcomer * UNPROVEN]
        valued.sort(key=lambda item: item[:2])
        return [(space, victim) for _, _, space, victim in valued]

    def _give_up(self, space: Space, node: Node, *, whole: bool) -> int:
        """Let go of a node's memory, or of all but its blocks; returns the bytes that this freed, counted as it
        happens: what was found before others went is no longer true."""
        if node.parent is None:
            return 0
        self._spaces.evicted += 1
        held = node.nbytes
        node.contexts = {}
        point = node.checkpoint
        if not whole:
            node.checkpoint = point if point is not None and point.backed else None
            if node.checkpoint is not None:
                node.checkpoint.drop()
            elif not space.whole:
                node.kind = "branch"
            freed = held - node.nbytes
            space.tree.tidy(node)
            return freed
        if all(b.backed for b in node.blocks) and (point is None or point.backed):
            for part in [*node.blocks, *([point] if point is not None else [])]:
                part.drop()
            return held
        return held - node.nbytes + cut_off(space, node)

    def shed(self, level: Literal["warn", "critical"]) -> None:
        """warn: all but the two deepest checkpoints of each path go. critical: everything in memory; files stay."""
        for space in self._spaces.by_key.values():
            if level == "warn":
                for node in shallow(space.tree):
                    self._give_up(space, node, whole=False)
            # One that goes may leave its parent to be joined to another that was seen before: looked at until all went.
            while level == "critical" and any(node.nbytes for node in space.tree):
                for node in reversed(list(space.tree)):
                    self._give_up(space, node, whole=True)


def cut_off(space: Space, node: Node) -> int:
    """Remove a node, and above it what no longer leads to anything that can be restored; returns the bytes freed."""
    freed = 0
    while node.parent is not None:
        parent = node.parent
        freed += space.tree.remove(node)
        if space.whole or parent.pins or parent.children or parent.checkpoint is not None:
            break
        node = parent
    return freed

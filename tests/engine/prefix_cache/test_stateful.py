"""Whatever is done to the prefix cache, in whatever order and under whatever budget: nothing wrong is stored or served.

The machine asks as the engine does (look up, keep at marks, keep the turn, or be cancelled on the way), evicts by small
budgets, sheds, clears, writes, restarts and loses files. After every step each node is compared with what its tokens
compute to, and the cache's own invariants hold.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.drafters.prompt_lookup import LookupSnapshot
from engine.kv_cache.base import LayerSnapshot, Snapshot
from engine.prefix_cache.blocks import Block
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from engine.prefix_cache.disk_file import SUFFIX
from engine.prefix_cache.radix_tree import Node
from tests.cases import examples
from tests.engine.prefix_cache.made import FAMILIES, check, snapshot

SMALL = {
    "engine.prefix_cache.blocks.SPAN": 5,
    "engine.prefix_cache.eviction.SHORT": 16,
    "engine.prefix_cache.insertion.SHORT": 16,
    "engine.prefix_cache.eviction.MAX_NODES": 24,
    "engine.prefix_cache.marks.FIRST_RUNG": 8,
    "engine.prefix_cache.marks.ANCHOR_GAIN": 2,
}
"""Thresholds that real prompts cross, brought down to where short ones cross them."""
STEMS = [[(7 * i * (s + 1) + s) % 5 for i in range(24)] for s in range(2)]
TEXTS = st.builds(
    lambda stem, n, seed, tail: [*STEMS[stem][:n], *random.Random(seed).choices(range(5), k=tail)],
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([24, 24, 12, 0]),
    st.integers(0, 40),
    st.sampled_from([4, 6, 12, 24, 30]),
)
"""Prompts over few heads; how long they are together is about what the budgets hold."""
DATA = st.data()
KEYS = st.sampled_from("kkkkkq")

REQUEST: dict[str, Any] = {
    "text": TEXTS,
    "follow": st.sampled_from([None, None, None, 0, 1, 2]),
    "answer": st.sampled_from([1, 4]),
    "key": KEYS,
    "boundary": st.sampled_from([0, 6, 12, 20]),
    "cancelled": st.sampled_from(["", "", "", "", "", "", "reading", "decoding"]),
    "drafting": st.booleans(),
}


class InlineTier(DiskTier):
    """Writes when it is told to, on the caller's thread: the same steps always find the same files."""

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__(folder, limit, least=1)
        self._thread = threading.Thread()

    def close(self, timeout: float = 0.0) -> None:
        self._queue.put(None)
        self._work()


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, value in SMALL.items():
            self.patch.setattr(name, value)
        # Which file was used last must not depend on how fine a clock is.
        self.patch.setattr("engine.prefix_cache.disk._last_used", lambda segment: segment.id)
        self.folder = Path(tempfile.mkdtemp(prefix="dspark-machine-"))
        self.chats: list[list[int]] = []

    def teardown(self) -> None:
        self.cache.close()
        self.patch.undo()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(
        family=st.one_of(st.sampled_from(["qwen3", "qwen3+kv8"]), st.sampled_from(sorted(FAMILIES))),
        room=st.sampled_from([1.2, 1.6, 1.6, 1.8, 2.0, 2.0, 2.5, 4.0]),
        disk=st.sampled_from([0, 0, 0, 0, 60_000, 1 << 30]),
    )
    def start(self, family: str, room: float, disk: int) -> None:
        """room: how many chats of forty tokens fit into the budget."""
        self.kinds, self.disk = FAMILIES[family], disk
        self.cold = Cold(self.kinds)
        self.budget = int(snapshot(range(40), self.kinds).nbytes * room)
        self.open()

    def open(self) -> None:
        tier = InlineTier(self.folder, self.disk) if self.disk else None
        self.cache = PrefixCache(self.budget, tier)

    # What the engine does ---------------------------------------------------------------------------------------------

    @rule(**REQUEST)
    def ask(
        self,
        text: list[int],
        follow: int | None,
        answer: int,
        key: str,
        boundary: int,
        cancelled: str,
        drafting: bool,
    ) -> None:
        """A request, or the next turn of an earlier one."""
        prompt = [*self.chats[follow % len(self.chats)], *text[-4:]] if follow is not None and self.chats else text
        trimmable = all(kind in ("append", "packed") for kind in self.kinds)
        position = self.served(prompt, key)
        marks = self.cache.marks(prompt, position, (boundary,) if boundary else (), key, trimmable=trimmable)
        if cancelled == "reading":
            self.put(prompt, (position + len(prompt) + 1) // 2, key, "rung", drafting)
            return
        for mark in marks:
            self.put(prompt, mark.at, key, mark.kind, drafting)
        if trimmable:
            self.put(prompt, len(prompt), key, "boundary", drafting)
        turn = [*prompt, *text[: answer // 2 if cancelled else answer]]
        self.put(turn, len(turn), key, "turn", drafting)
        self.chats = [turn, *self.chats[:3]]

    @rule(requests=st.lists(st.fixed_dictionaries(REQUEST), min_size=2, max_size=8))
    def ask_on(self, requests: list[dict[str, Any]]) -> None:
        """Most of what happens: one request after the other."""
        for request in requests:
            self.ask(**request)
            self.sound()
            self.every_stored_state_equals_a_cold_one()

    def served(self, prompt: Sequence[int], key: str) -> int:
        found = self.cache.match(prompt, key, "lookup")
        if found is None:
            return 0
        assert 0 < found.length < len(prompt)
        check(found.snapshot, prompt[: found.length], self.kinds)
        if found.context is not None:
            assert found.context.tokens[: found.length] == tuple(prompt[: found.length])  # pyright: ignore[reportAttributeAccessIssue]
        return found.length

    def put(self, tokens: Sequence[int], length: int, key: str, kind: Any, drafting: bool) -> None:
        if length:
            held = {"lookup": LookupSnapshot(tuple(tokens[:length]))} if drafting else {}
            self.cache.put(tokens, length, key, snapshot(tokens[:length], self.kinds), held, kind)

    @rule(text=TEXTS, key=KEYS, peeks=st.booleans())
    def look_up(self, text: list[int], key: str, peeks: bool) -> None:
        if peeks:
            self.cache.peek(text, key)
        self.served(text, key)

    # What happens to it -----------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["warn", "critical", "clear", "clear all", "write", "restart", "lose", "measure"]),
        data=DATA,
    )
    def disturb(self, what: str, data: st.DataObject) -> None:
        before, tier = self.cache.nbytes, self.cache.disk
        match what:
            case "warn" | "critical":
                assert self.cache.shed(what) == before - self.cache.nbytes
                assert what == "warn" or self.cache.nbytes == 0
            case "clear" | "clear all":
                self.cache.clear(disk=what == "clear all")
                assert self.cache.nbytes == 0
            case "write" if tier is not None:
                tier.close()
            case "restart" if tier is not None:
                self.cache.close()
                self.budget = int(self.budget * data.draw(st.sampled_from([0.6, 1.0, 1.6])))
                self.open()
            case "lose" if tier is not None:
                tier.close()
                for path in sorted(self.folder.glob(f"*/*{SUFFIX}"))[data.draw(st.integers(0, 9)) :][:1]:
                    path.unlink()
            case "measure" if tier is None:
                self.cache.learn("k", 100, data.draw(st.sampled_from([1.0, 50.0])))
            case _:
                pass

    # What holds after each --------------------------------------------------------------------------------------------

    @invariant()
    def sound(self) -> None:
        assert self.cache.faults() == []
        assert self.cache.stats().unsound == 0

    @invariant()
    def every_stored_state_equals_a_cold_one(self) -> None:
        for space in self.cache._spaces.by_key.values():  # pyright: ignore[reportPrivateUsage]
            for node in space.tree:
                if node.nbytes:
                    assert space.layout is not None
                    self.cold.check(node, space.layout.groups)


class Cold:
    """Compares what nodes hold with what their tokens compute to; what was compared once and is the same object under
    the same tokens is not compared again."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = kinds
        self.right: dict[Any, Any] = {}

    def check(self, node: Node, groups: Sequence[Sequence[tuple[int, int]]]) -> None:
        path = tuple(int(t) for step in node.lineage() for t in step.tokens)
        at = node.start
        for block in node.blocks:
            self._once(block.arrays, path[: at + block.length], lambda cold, b=block, i=at: _rows(b, cold, groups, i))
            at += block.length
        if node.checkpoint is not None and node.checkpoint.layers is not None:
            layers = node.checkpoint.layers
            self._once(layers, path, lambda cold: _point(layers, cold))
        for context in node.contexts.values():
            assert context.tokens == path  # pyright: ignore[reportAttributeAccessIssue]

    def _once(self, held: Any, tokens: tuple[int, ...], compare: Callable[[Snapshot], None]) -> None:
        if held and (id(held), tokens) not in self.right:
            compare(snapshot(tokens, self.kinds))
            # Held on to, or another object might get its id.
            self.right[id(held), tokens] = held


def _rows(block: Block, cold: Snapshot, groups: Sequence[Sequence[tuple[int, int]]], at: int) -> None:
    for x, group in zip(block.arrays, groups, strict=True):
        for row, (layer, slot) in zip(np.array(x), group, strict=True):
            assert np.array_equal(row, np.array(cold.layers[layer].data[slot])[:, :, at:]), (at, layer, slot)


def _point(layers: Sequence[tuple[int, LayerSnapshot]], cold: Snapshot) -> None:
    for layer, held in layers:
        want = cold.layers[layer]
        assert (held.length, held.trimmable_from, held.nbytes) == (want.length, want.trimmable_from, want.nbytes)
        for x, y in zip(held.arrays(), want.arrays(), strict=True):
            assert np.array_equal(np.array(x), np.array(y)), layer


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = examples(400, stateful_step_count=15, suppress_health_check=list(HealthCheck))

"""What does not add up is never served, is said and counted; and nobody can take away what is in use."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.diagnostics import doctor
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from engine.prefix_cache.disk_file import SUFFIX
from engine.prefix_cache.eviction import SHORT
from engine.prefix_cache.radix_tree import Node
from engine.prefix_cache.stats import record_fault
from engine.types import Finished, Request
from tests.engine.prefix_cache.made import ToyContext, check, snapshot

GOLDEN = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"
KINDS = ("append", "recurrent")
BASE = list(range(20))


def put(cache: PrefixCache, tokens: list[int], kinds: tuple[str, ...] = ("append",), **more: Any) -> bool:
    return cache.put(tokens, len(tokens), "k", snapshot(tokens, kinds), **more)


def node_of(cache: PrefixCache, tokens: list[int]) -> Node:
    return cache._spaces.get("k").tree.walk(mx.array(tokens)).path[-1]  # pyright: ignore[reportPrivateUsage, reportArgumentType]


def hole(node: Node) -> None:
    node.blocks.pop()


def short_block(node: Node) -> None:
    node.blocks[0].arrays = [x[:, :, :, :-1] for x in node.blocks[0].arrays]


def other_length(node: Node) -> None:
    assert node.checkpoint is not None
    assert node.checkpoint.layers is not None
    node.checkpoint.layers = tuple((i, replace(x, length=x.length - 1)) for i, x in node.checkpoint.layers)


def no_checkpoint_layers(node: Node) -> None:
    assert node.checkpoint is not None
    node.checkpoint.layers = ()


def other_context(node: Node) -> None:
    node.contexts = {"d": ToyContext((1, 2))}


@pytest.mark.parametrize("spoil", [hole, short_block, other_length, no_checkpoint_layers, other_context])
def test_what_does_not_add_up_is_a_miss_that_is_counted_and_goes(spoil: Callable[[Node], None]) -> None:
    said: list[str] = []
    cache = PrefixCache(1 << 20, on_fault=said.append)
    put(cache, BASE, KINDS)
    put(cache, [*BASE, 1, 2, 3], KINDS)
    put(cache, [90, 91], KINDS)
    assert cache.faults() == []
    spoil(node_of(cache, BASE))
    assert cache.faults()
    assert cache.match([*BASE, 1, 2, 3, 4], "k") is None
    assert (cache.stats().unsound, cache.stats().hits["miss"], len(said)) == (1, 1, 1)
    assert "does not add up" in said[0]
    # All that was built on it went, nothing else did.
    assert cache.faults() == []
    assert cache.match([*BASE, 5], "k") is None
    assert cache.match([90, 91, 5], "k") is not None
    assert put(cache, BASE, KINDS)
    found = cache.match([*BASE, 5], "k")
    assert found is not None
    check(found.snapshot, BASE, KINDS)


def test_a_file_that_does_not_add_up_is_not_read_again(tmp_path: Path) -> None:
    cache = PrefixCache(1 << 20, DiskTier(tmp_path, least=1))
    put(cache, BASE, kind="turn")
    cache.close()
    cache = PrefixCache(1 << 20, DiskTier(tmp_path, least=1))
    assert cache.match([99, 1], "k") is None
    node = node_of(cache, BASE)
    node.blocks[0].length += 1
    assert cache.match([*BASE, 1], "k") is None
    assert cache.stats().unsound == 1
    assert not list(tmp_path.glob(f"*/*{SUFFIX}"))


def test_doctor_tells_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path))
    [fact] = [f for f in doctor.examine() if f.group == "prefix cache"]
    assert (fact.value, fact.ok) == ("0", True)
    record_fault("A stored prefix of 20 tokens does not add up and was dropped: for a test.")
    [fact] = [f for f in doctor.examine() if f.group == "prefix cache"]
    assert fact.value.startswith("1; the last one: ")
    assert not fact.ok
    assert fact.advice


def test_what_is_pinned_stays_as_it_is() -> None:
    """Giving up both children of a branch used to take the branch along, although it was in use."""
    for kinds in (("append",), KINDS):
        cache = PrefixCache(1 << 20)
        for tail in (7, 8):
            put(cache, [*BASE, tail, tail], kinds)
        branch = node_of(cache, BASE)
        tree = cache._spaces.get("k").tree  # pyright: ignore[reportPrivateUsage]
        with tree.pinned([branch]):
            for leaf in list(branch.children.values()):
                tree.remove(leaf)
            assert (branch.parent, branch.start, branch.end) == (tree.root, 0, 20)
            with pytest.raises(RuntimeError, match="in use"):
                tree.remove(branch)


def test_a_layout_that_changed_starts_again() -> None:
    cache = PrefixCache(1 << 20)
    put(cache, BASE)
    put(cache, [*BASE, 1], KINDS)
    assert cache.stats().unsound == 1
    found = cache.match([*BASE, 1, 2], "k")
    assert found is not None
    check(found.snapshot, [*BASE, 1], KINDS)


def test_two_equally_long_chats_both_stay_in_room_for_two() -> None:
    one, two = [1, *range(2000)], [2, *range(2000)]
    cache = PrefixCache(int(snapshot(one).nbytes * 2.2))
    served: list[int] = []
    for turn in range(6):
        for chat in (one, two):
            found = cache.match([*chat, 5], "k")
            served.append(found.length if found is not None else 0)
            chat += [turn] * 5
            put(cache, chat, kind="turn")
    assert served[:2] == [0, 0]
    assert all(length >= 2000 for length in served[2:]), served


def test_short_prefixes_under_used_heads_do_not_lock_long_chats_out() -> None:
    unit = snapshot(range(100)).nbytes
    cache = PrefixCache(unit * 40)
    for head in range(5):
        system = [1000 + head, *range(700)]
        for tail in range(3):
            prompt = [*system, 2000 + tail, *range(50)]
            cache.match(prompt, "k")
            put(cache, prompt)
    long = [3000, *range(2 * SHORT)]
    assert put(cache, long)
    found = cache.match([*long, 1], "k")
    assert found is not None
    assert found.length == len(long)


def tokens_of(engine: Engine, prompt: list[int], count: int, **more: Any) -> tuple[int, ...]:
    request = Request(tuple(prompt), max_tokens=count, stop_ids=frozenset(), drafter="none", **more)
    last = list(engine.submit(request))[-1]
    assert isinstance(last, Finished)
    return tuple(last.tokens)


def test_a_full_cache_serves_what_a_cold_engine_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chats over one system prompt where two fill the cache: the next turn of the third."""
    for module in ("eviction", "insertion"):
        monkeypatch.setattr(f"engine.prefix_cache.{module}.SHORT", 200)
    prompts = json.loads((GOLDEN / "golden" / "expected.json").read_text())["prompts"]
    flat, rng = [t for p in prompts for t in p], random.Random(7)
    text = [rng.choice(flat) if rng.random() < 0.2 else flat[i % len(flat)] for i in range(1000)]
    system = text[:220]
    cache = PrefixCache(420 * 3072)
    with open_engine(GOLDEN, options=Options(cache=cache)) as engine:
        for longer in (100, 120, 140):
            engine.run_exclusive(cache.clear)
            chats = [[*system, 65, *text[240:300]], [*system, 66, *text[320:380]], [*system, 67, *text[400:][:longer]]]
            answer: tuple[int, ...] = ()
            for chat in chats:
                answer = tokens_of(engine, chat, 4)
            turn = [*chats[2], *answer, 32]
            assert tokens_of(engine, turn, 8) == tokens_of(engine, turn, 8, remember=False), longer
            assert engine.run_exclusive(cache.faults) == []
        assert cache.stats().evicted > 0


def test_all_memory_goes_when_it_must_also_what_is_joined_on_the_way(tmp_path: Path) -> None:
    """A leaf that only memory has goes; its parent is joined to a sibling that a file has, and that went before."""
    for order in (1, -1):
        cache = PrefixCache(1 << 20, DiskTier(tmp_path / str(order), least=1))
        turns = [("turn", [*BASE, 7, 7]), ("boundary", [*BASE, 8, 8])]
        for kind, tokens in turns[::order]:
            put(cache, tokens, kind=kind)
        assert cache.disk is not None
        cache.disk.close()
        cache.shed("critical")
        assert cache.nbytes == 0
        assert cache.faults() == []

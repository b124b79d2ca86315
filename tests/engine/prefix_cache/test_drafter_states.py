"""O18: with a learned drafter the cache serves as much as without, and the drafter's memory comes along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.drafters.load import load_drafter
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from engine.types import Finished, Prefilled, Request, Round

GOLDEN = Path(__file__).parents[2] / "golden"
DRAFTERS = ("dspark-qwen3", "dflash-zlab-swa")
TEXT = [ord(c) % 200 for c in "def push(self, item):\n    self.items.append(item)\n    return self  # chaining\n" * 3]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", options=Options(cache=PrefixCache(1 << 28))) as opened:
        for name in DRAFTERS:
            path = GOLDEN / "drafters" / name
            opened.add_drafter(
                opened.run_exclusive(lambda path=path, name=name: load_drafter(path, opened.target, bits=0, name=name))
            )
        yield opened


def use(engine: Engine, cache: PrefixCache | None) -> None:
    plan: Any = engine.scheduler._plan  # pyright: ignore[reportPrivateUsage]
    engine.run_exclusive(lambda: setattr(plan, "cache", cache))


def three_turns(engine: Engine, drafter: str) -> tuple[list[int], list[tuple[int, ...]], list[int]]:
    """Tokens read per turn, answers, drafts accepted per turn."""
    history, read, answers, accepted = TEXT[:70], [], [], []
    for turn in range(3):
        events = list(
            engine.submit(Request(list(history), max_tokens=24, stop_ids=frozenset(), drafter=drafter, cap=3))
        )
        done = events[-1]
        assert isinstance(done, Finished)
        facts = next(e for e in events if isinstance(e, Prefilled))
        read.append(facts.tokens - facts.cached)
        answers.append(done.tokens)
        accepted.append(sum(e.accepted for e in events if isinstance(e, Round)))
        history = [*history, *done.tokens, *TEXT[100 + 7 * turn : 106 + 7 * turn]]
    return read, answers, accepted


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_o18_served_as_much_as_without_and_drafting_as_well_as_cold(engine: Engine, drafter: str) -> None:
    use(engine, PrefixCache(1 << 28))
    plain = three_turns(engine, "none")
    use(engine, PrefixCache(1 << 28))
    warm = three_turns(engine, drafter)
    use(engine, None)
    cold = three_turns(engine, drafter)
    assert warm[0] == plain[0] == [70, 7, 7]
    assert warm[1] == plain[1] == cold[1]
    # The context that was restored drafts exactly as one that read everything.
    assert warm[2] == cold[2]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_contexts_survive_a_restart(engine: Engine, drafter: str, tmp_path: Path) -> None:
    for _ in range(2):
        cache = PrefixCache(1 << 28, DiskTier(tmp_path, least=1))
        use(engine, cache)
        three_turns(engine, drafter)
        key = engine.spec.fingerprint
        found = engine.run_exclusive(lambda cache=cache, key=key: cache.match([*TEXT[:70], 1], key, drafter))
        assert found is not None
        assert found.context is not None
        assert found.context.length >= 70
        assert cache.disk is not None
        cache.disk.close()


def test_switching_drafters_keeps_the_prefix(engine: Engine) -> None:
    use(engine, PrefixCache(1 << 28))
    first = three_turns(engine, "none")
    for drafter in (*DRAFTERS, "lookup", "lookup+dspark-qwen3"):
        read, answers, _ = three_turns(engine, drafter)
        assert answers == first[1]
        assert read == [1, 7, 7] or sum(read) <= 3, read

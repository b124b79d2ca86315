"""Learned drafters inside the engine: joining late, resuming from the prefix cache, leaving and coming back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from engine.drafters.load import load_drafter
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.types import Failed, Finished, Prefilled, Request, Round
from tests.engine.drafters import synthetic as s
from tests.engine.drafters.golden import GOLDEN, Golden

NAMES = ("dspark-qwen3", "dflash-zlab-swa")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    options = Options(cache=PrefixCache(64 << 20), cap="full")
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", options=options) as made:
        for name in NAMES:
            folder = GOLDEN / "drafters" / name
            drafter = made.run_exclusive(lambda f=folder, n=name: load_drafter(f, made.target, name=n))
            made.add_drafter(drafter)
        yield made


def rounds(events: list[Any]) -> list[Round]:
    return [e for e in events if isinstance(e, Round)]


def drafts_by_place(found: list[Round]) -> dict[int, tuple[int, ...]]:
    """Position of the first draft -> the whole blocks drafted there."""
    return {r.start: r.drafted for r in found if len(r.drafted) == 7}


def ask(engine: Engine, prompt: list[int], **kwargs: Any) -> list[Any]:
    return list(engine.submit(Request(prompt, stop_ids=frozenset(), **kwargs)))


@pytest.mark.parametrize("name", NAMES)
def test_a_drafter_that_joins_late_drafts_as_one_that_was_there(engine: Engine, name: str) -> None:
    golden = Golden("dspark-qwen3")
    prompt, plain = golden.json["prompts"][0], golden.json["plain_greedy"][0]
    always = drafts_by_place(rounds(ask(engine, prompt, max_tokens=96, drafter=name, remember=False)))
    seen: list[Any] = []
    done, ready = threading.Event(), threading.Event()
    holder: list[Any] = []

    def listen(event: Any) -> None:
        seen.append(event)
        if isinstance(event, Round):
            ready.wait(5)
            if event.index in (6, 14, 20):
                holder[0].use(name if event.index != 14 else "none", None)
        if isinstance(event, Finished | Failed):
            done.set()

    request = Request(prompt, max_tokens=96, drafter="none", stop_ids=frozenset(), remember=False)
    holder.append(engine.submit(request, listen))
    ready.set()
    assert done.wait(60)
    assert list(seen[-1].tokens) == plain
    joined = drafts_by_place([r for r in rounds(seen) if r.drafter == name])
    both = joined.keys() & always.keys()
    assert len(both) > 5
    assert {place: joined[place] for place in both} == {place: always[place] for place in both}


@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_from_the_cache_drafts_as_a_cold_one(engine: Engine, name: str) -> None:
    golden = Golden("dspark-qwen3")
    prompt = golden.json["prompts"][3]
    longer = prompt + golden.json["plain_greedy"][3][:20]
    cold = ask(engine, longer, max_tokens=40, drafter=name, remember=False)
    ask(engine, prompt, max_tokens=20, drafter=name)
    warm = ask(engine, longer, max_tokens=40, drafter=name)
    assert next(e for e in warm if isinstance(e, Prefilled)).cached > 0
    assert warm[-1].tokens == cold[-1].tokens
    assert [r.drafted for r in rounds(warm)] == [r.drafted for r in rounds(cold)]


def test_a_context_of_another_drafter_is_not_taken() -> None:
    """Same name, other weights: a stored context must not be read as this drafter's."""
    a, b = Golden("dspark-qwen3").load(), Golden("dflash-deepspec").load()
    context = a.new_context()
    a.observe(context, mx.zeros((5, 384)), 0, [0] * 5)
    other = b.new_context()
    other.restore(context.snapshot(), 5)
    assert other.length == 0
    assert a.fingerprint != b.fingerprint
    same = Golden("dspark-qwen3").load().new_context()
    same.restore(context.snapshot(), 5)
    assert same.length == 5


def test_a_snapshot_survives_the_disk_format() -> None:
    from engine.prefix_cache.serialization import pack, unpack

    context = Golden("dflash-zlab-swa").load().new_context()
    drafter = Golden("dflash-zlab-swa").load()
    drafter.observe(context, mx.random.normal((40, 384)), 0, [0] * 40)
    snap = context.snapshot()
    arrays: dict[str, mx.array] = {}
    back = unpack(pack(snap, "context", arrays), arrays)
    assert back.length == 40
    assert back.owner == drafter.fingerprint
    assert all(mx.array_equal(x, y) for x, y in zip(back.arrays(), snap.arrays(), strict=True))


def test_reports_why_a_drafter_is_not_there(engine: Engine, tmp_path: Any) -> None:
    from engine.errors import DrafterRefused

    folder = s.deepspec().save(tmp_path)
    with pytest.raises(DrafterRefused, match="knows 64 words, but the model 384"):
        engine.run_exclusive(lambda: load_drafter(folder, engine.target))

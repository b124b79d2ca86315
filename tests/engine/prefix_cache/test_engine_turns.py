"""The cache inside the engine: real families, speculation on, whole conversations."""

from __future__ import annotations

import gc
import math
import statistics
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakes import ScriptedDrafter

from engine.backend.memory_pressure import PressureGuard
from engine.decoding.scheduler import Scheduler
from engine.engine import Engine, Options
from engine.kv_cache.base import Snapshot
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from engine.targets.load import load_target
from engine.types import Failed, Finished, Prefilled, Prefilling, Request
from tests.cases import thinned

GOLDEN = Path(__file__).parents[2] / "golden" / "targets"
FAMILIES = [
    "tiny-qwen3",
    "tiny-qwen3+kv8",
    "tiny-qwen3_5",
    "tiny-gemma4",
    "tiny-lfm2",
    "tiny-muse_glimmer",
    "tiny-nemotron_h",
]
TEXT = [ord(c) % 200 for c in "def push(self, item):\n    self.items.append(item)\n    return self  # chaining\n" * 3]


@pytest.fixture(scope="module", params=thinned(FAMILIES))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    name, _, quantised = str(request.param).partition("+")
    # The golden config spells infinity as newer transformers do.
    overrides = {"time_step_limit": (0.0, math.inf)} if name == "tiny-nemotron_h" else {}
    scheduler = Scheduler()
    bits = 8 if quantised else 0
    loaded = scheduler.run_exclusive(lambda: load_target(GOLDEN / name, overrides=overrides, kv_bits=bits)).result()
    with Engine(scheduler, loaded, Options(max_batch=2)) as opened:
        opened.add_drafter(ScriptedDrafter(lambda ids, k: [ids[-1]] * k, name="echo"))
        yield opened


def use_cache(engine: Engine, cache: PrefixCache | None) -> None:
    """The same engine with another cache."""
    plan = engine.scheduler._plan  # pyright: ignore[reportPrivateUsage]
    assert plan is not None

    def swap() -> None:
        plan.cache = cache

    engine.run_exclusive(swap)


def ask(engine: Engine, prompt: Sequence[int], **kw: Any) -> tuple[Finished, Prefilled]:
    events = list(
        engine.submit(Request(list(prompt), **{"stop_ids": frozenset(), "max_tokens": 8, "drafter": "lookup", **kw}))
    )
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1], next(e for e in events if isinstance(e, Prefilled))


def fed(engine: Engine) -> int:
    """Tokens that went through the body since the last call."""
    target: Any = engine.target
    if not hasattr(target, "fed_tokens"):
        body = target.body
        target.fed_tokens = 0

        def counted(ids: mx.array, *args: Any, **kw: Any) -> Any:
            target.fed_tokens += int(ids.size)
            return body(ids, *args, **kw)

        target.body = counted
    count, target.fed_tokens = target.fed_tokens, 0
    return count


def same(a: Snapshot, b: Snapshot) -> bool:
    """Equal as far as later tokens can see: of a window only the part that it covers."""
    for x, y in zip(a.layers, b.layers, strict=True):
        for p, q in zip(x.arrays(), y.arrays(), strict=True):
            if x.kind == "window":
                n = min(p.shape[2], q.shape[2])
                p, q = p[:, :, -n:], q[:, :, -n:]
            if not mx.allclose(p, q, rtol=0, atol=1e-5).item():
                return False
    return True


def test_o12_o15_warm_equals_cold_at_every_kind_of_length(engine: Engine) -> None:
    """O10, O12, O15: shared lengths across the window's edge (16), with drafts, and the state afterwards."""
    first = TEXT[:44]
    for shared in (0, 1, 4, 15, 16, 17, 31, 40, 43, 44):
        prompt = [*first[:shared], *(TEXT[90 : 90 + 44 - shared] or [5])]
        kept: list[Snapshot] = []
        outs = []
        for cache in (PrefixCache(1 << 28), None):
            use_cache(engine, cache)
            ask(engine, first, drafter="echo", cap=4)
            outs.append(ask(engine, prompt, drafter="lookup+echo", cap=4, boundaries=(16, 40))[0].tokens)
            keeper = PrefixCache(1 << 28)
            use_cache(engine, keeper)
            ask(engine, prompt, max_tokens=1)
            found = keeper.match([*prompt, 3], engine.spec.fingerprint)
            assert found is not None
            kept.append(found.snapshot)
        assert outs[0] == outs[1], shared
        assert same(kept[0], kept[1])


def test_o13_o14_identical_and_tiny_prompts(engine: Engine) -> None:
    """O13, O14: the second time all but one token is served, and the answer is the same."""
    use_cache(engine, PrefixCache(1 << 28))
    fed(engine)
    for prompt in (TEXT[:30], TEXT[:1], TEXT[:2]):
        one, cold = ask(engine, prompt, max_tokens=3, drafter="none")
        first = fed(engine)
        two, warm = ask(engine, prompt, max_tokens=3, drafter="none")
        again = fed(engine)
        assert one.tokens == two.tokens
        if len(prompt) == 30:
            assert (cold.cached, warm.cached, warm.hit) == (0, 29, "exact")
            assert first - again == 29
            assert two.usage.cached == 29


def test_five_turns_are_served_with_their_replies(engine: Engine) -> None:
    use_cache(engine, PrefixCache(1 << 28))
    history: list[int] = TEXT[:60]
    before = 0
    for turn in range(5):
        done, warm = ask(engine, history, drafter="lookup+echo", cap=3)
        if turn:
            assert warm.hit == "turn"
            # All of it, but the last token of the reply, which never went through the model.
            assert warm.cached == before - 1
        history = [*history, *done.tokens]
        before = len(history)
        history += TEXT[100 + 9 * turn : 107 + 9 * turn]


def test_o16_turns_end_everywhere(engine: Engine) -> None:
    """O16: after a stop string, a cancel or a stop id in the middle of a block the next turn is right."""
    use_cache(engine, PrefixCache(1 << 28))
    prompt = TEXT[:40]
    plain, _ = ask(engine, prompt, max_tokens=12, drafter="none")
    stop = plain.tokens[5]
    done, _ = ask(engine, prompt, max_tokens=12, drafter="echo", cap=6, stop_ids=frozenset({stop}))
    ticket = engine.submit(Request(prompt, max_tokens=400, stop_ids=frozenset()))
    for event in ticket:
        if isinstance(event, Prefilled):
            ticket.cancel()
    for ids in (done.tokens, plain.tokens):
        following = [*prompt, *ids, *TEXT[70:75]]
        warm, facts = ask(engine, following)
        assert facts.cached >= len(prompt) - 1
        use_cache(engine, None)
        cold, _ = ask(engine, following)
        assert warm.tokens == cold.tokens
        use_cache(engine, PrefixCache(1 << 28))
        ask(engine, prompt, max_tokens=12)


def test_system_prompt_and_fan_out(engine: Engine) -> None:
    use_cache(engine, PrefixCache(1 << 28))
    system = TEXT[:50]
    served = []
    for n in range(4):
        _, facts = ask(engine, [*system, 150 + n, *TEXT[60 + n : 66 + n]], max_tokens=2, boundaries=(50, 56))
        served.append(facts.cached)
    assert served[0] == 0
    assert all(s >= 50 for s in served[1:]), served


def test_a_failing_request_takes_nothing_with_it(engine: Engine) -> None:
    use_cache(engine, PrefixCache(1 << 28))
    ask(engine, TEXT[:40])

    def broken(ids: list[int], k: int) -> list[int]:
        raise RuntimeError("drafter broke")

    engine.add_drafter(ScriptedDrafter(broken, name="broken"))
    events = list(engine.submit(Request([*TEXT[:40], 7], max_tokens=8, drafter="broken", cap=2)))
    assert isinstance(events[-1], Failed)
    assert ask(engine, [*TEXT[:40], 7])[1].cached >= 39


def test_restart_from_disk(engine: Engine, tmp_path: Path) -> None:
    prompt = TEXT[:60]
    use_cache(engine, PrefixCache(1 << 28, DiskTier(tmp_path, least=1)))
    done, _ = ask(engine, prompt)
    following = [*prompt, *done.tokens, *TEXT[70:75]]
    plan = engine.scheduler._plan  # pyright: ignore[reportPrivateUsage]
    assert plan is not None
    assert plan.cache is not None
    plan.cache.close()
    use_cache(engine, PrefixCache(1 << 28, DiskTier(tmp_path, least=1)))
    warm, facts = ask(engine, following)
    assert facts.hit == "disk"
    assert facts.cached == len(prompt) + len(done.tokens) - 1
    use_cache(engine, None)
    assert ask(engine, following)[0].tokens == warm.tokens


def test_a_cancelled_prefill_is_kept() -> None:
    with open_engine(GOLDEN / "tiny-qwen3", options=Options(chunk=16, cache=PrefixCache(1 << 28))) as engine:
        prompt = (TEXT * 4)[:600]
        ticket = engine.submit(Request(prompt, max_tokens=2))
        for event in ticket:
            if isinstance(event, Prefilling) and event.done >= 64:
                ticket.cancel()
        deadline = time.monotonic() + 5
        while engine.scheduler.load != (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        _, facts = ask(engine, prompt, max_tokens=1)
        assert 64 <= facts.cached < 600


def test_o48_budget_holds_under_many_conversations_and_cancels() -> None:
    """O48: bytes held never above the limit, and memory in use does not climb."""
    cache = PrefixCache(1 << 20)
    with open_engine(GOLDEN / "tiny-qwen3", options=Options(cache=cache)) as engine:
        active: list[int] = []
        for n in range(60):
            prompt = [n % 200, *TEXT[n : n + 30 + n % 17]]
            ticket = engine.submit(Request(prompt, max_tokens=6, stop_ids=frozenset()))
            if n % 5 == 0:
                ticket.cancel()
            list(ticket)
            assert engine.run_exclusive(lambda: cache.nbytes) <= cache.budget
            active.append(engine.run_exclusive(mx.get_active_memory))
        assert statistics.median(active[45:]) <= statistics.median(active[30:45]) + (1 << 18)


def test_memory_pressure_empties_the_cache_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PrefixCache(1 << 28)
    with open_engine(GOLDEN / "tiny-qwen3", options=Options(cache=cache)) as engine:
        before = ask(engine, TEXT[:40])[0].tokens
        assert cache.nbytes > 0
        seen = ["ok"]
        monkeypatch.setattr("engine.backend.memory_pressure.POLL_S", 0.01)
        monkeypatch.setattr(PressureGuard.__init__, "__defaults__", (lambda: seen[0], time.monotonic))
        engine.watch_memory()
        seen[0] = "critical"
        deadline = time.monotonic() + 20
        while cache.nbytes and time.monotonic() < deadline:
            time.sleep(0.01)
        assert cache.nbytes == 0
        assert ask(engine, TEXT[:40])[0].tokens == before


def test_o47_a_closed_engine_holds_nothing() -> None:
    """O47: after unloading, the weights and what was cached for them are gone."""
    cache = PrefixCache(1 << 28)
    engine = open_engine(GOLDEN / "tiny-qwen3", options=Options(cache=cache))
    ask(engine, TEXT[:40])
    gone: Any = weakref.ref(engine.target)
    before = mx.get_active_memory()
    engine.close()
    del engine
    gc.collect()
    assert gone() is None
    assert cache.nbytes == 0
    assert mx.get_active_memory() < before

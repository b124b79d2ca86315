"""Device synchronisations, counted at MLX itself: one a round, and at most one more to look at a draft's confidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest
from fakes import Run

from engine.decoding.draft_length.cost_model import Costs, Curve
from engine.decoding.draft_length.policy import Adaptive
from engine.decoding.loop import Loop
from engine.drafters.chain import Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.types import Sampling
from tests.cases import thinned
from tests.engine.drafters.golden import DRAFTERS, Golden, golden_target

READERS = ("tolist", "item", "__array__", "__int__", "__float__", "__bool__", "__index__")
SAMPLINGS = {
    "greedy": Sampling(),
    "coupled": Sampling(temperature=0.8, top_p=0.9, seed=3),
    "rejection": Sampling(temperature=0.8, top_p=0.9),
}
CONFIDENT = [
    n for n in DRAFTERS if "confidence_head.proj.weight" in mx.load(str(Golden(n).folder / "model.safetensors"))
]


class Syncs:
    """How often the host waited for the device. Reading what an `eval` has already made costs nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._ready: dict[int, mx.array] = {}
        evaluate = mx.eval

        def eval_(*args: Any) -> None:
            self.count += 1
            evaluate(*args)
            self._made(args)

        monkeypatch.setattr(mx, "eval", eval_)
        monkeypatch.setattr(mx, "synchronize", eval_)
        for name in READERS:
            monkeypatch.setattr(mx.array, name, self._reading(getattr(mx.array, name)))

    def _made(self, value: Any) -> None:
        if isinstance(value, mx.array):
            self._ready[id(value)] = value  # held, so that its id is not given to another one
        elif isinstance(value, list | tuple):
            for x in value:
                self._made(x)

    def _reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(array: mx.array, *args: Any, **kwargs: Any) -> Any:
            if id(array) not in self._ready:
                self.count += 1
                self._ready[id(array)] = array
            return read(array, *args, **kwargs)

        return counted


class Counted(Loop):
    """A loop that notes the synchronisations of each round."""

    def __init__(self, target: Any, syncs: Syncs) -> None:
        super().__init__(target)
        self.syncs = syncs
        self.rounds: list[int] = []

    @contextmanager
    def _round(self) -> Iterator[None]:
        before = self.syncs.count
        yield
        self.rounds.append(self.syncs.count - before)

    def step(self, batch: Any) -> Any:
        with self._round():
            return super().step(batch)

    def first(self, sequence: Any, hidden: mx.array) -> Any:
        with self._round():
            return super().first(sequence, hidden)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


def decode(syncs: Syncs, golden: Golden, drafter: Any, sampling: Sampling, hybrid: bool = False, **how: Any) -> Run:
    target = golden_target(golden.target)
    parts = (Lookup(LookupSettings(min_n=2)), drafter) if hybrid else (drafter,)
    prompt = golden.json["prompts"][0]
    return Run(target, prompt, Chain("x", parts), loop=Counted(target, syncs), sampling=sampling, **how)


def machine(longest: int, row: float) -> Costs:
    """A plain step is 10 ms, each further row `row` more, a draft 1 ms."""
    return Costs(Curve.of({w: 10.0 + row * (w - 1) for w in range(1, longest + 2)}), Curve.of({1: 1.0}))


@pytest.mark.parametrize(("name", "sampling", "hybrid"), thinned(DRAFTERS, ["greedy", "rejection"], [False, True]))
def test_one_a_round(syncs: Syncs, name: str, sampling: str, hybrid: bool) -> None:
    golden = Golden(name)
    drafter = golden.load(golden_target(golden.target))
    run = decode(syncs, golden, drafter, SAMPLINGS[sampling], hybrid, max_tokens=12)
    assert any(r.drafted for r in run.rounds)
    assert run.loop.rounds == [1] * len(run.rounds)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["dspark-qwen3", "dspark-gemma4", "dspark-speculators", "dflash-zlab", "dflash2"])
def test_one_a_round_while_the_length_adapts(syncs: Syncs, name: str, sampling: str) -> None:
    """Drafting, parked and probing."""
    golden = Golden(name)
    drafter = golden.load(golden_target(golden.target))
    policy = Adaptive(machine(drafter.max_draft, 3.0))
    run = decode(syncs, golden, drafter, SAMPLINGS[sampling], max_tokens=48, policy=policy)
    lengths = {len(r.drafted) for r in run.rounds}
    assert 0 in lengths and len(lengths) > 1
    assert run.loop.rounds == [1] * len(run.rounds)


@pytest.mark.parametrize(
    ("name", "sampling", "by", "adaptive"),
    thinned(CONFIDENT, ["greedy", "rejection"], ["threshold", "value"], [False, True], keep=3),
)
def test_two_a_round_where_confidence_is_looked_at(
    syncs: Syncs, name: str, sampling: str, by: str, adaptive: bool
) -> None:
    golden = Golden(name)
    doubt = golden.json.get("greedy_confidence", {}).get("threshold", 0.4)
    drafter = golden.load(golden_target(golden.target), threshold=doubt if by == "threshold" else 0.0)
    costs = machine(drafter.max_draft, 1.0)
    drafter.costs = costs.round_ms if by == "value" else None
    policy = Adaptive(costs) if adaptive else None
    run = decode(syncs, golden, drafter, SAMPLINGS[sampling], max_tokens=20, policy=policy)
    assert any(len(r.drafted) < r.cap for r in run.rounds), "nothing was cut short"
    asked = [r.cap > 0 for r in run.rounds]
    assert run.loop.rounds == [2 if drafting else 1 for drafting in asked]

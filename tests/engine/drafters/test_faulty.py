"""A drafter whose numbers are no numbers costs its drafts and nothing else, and is named: every kind, any decoding."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest
from fakes import Run, ScriptedDrafter, TableTarget

from engine.drafters.chain import Chain
from engine.drafters.checkpoint import read_checkpoint
from engine.drafters.load import build
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.types import DenseQ, Finished, Proposal, Request, Round, Sampling, Source, SparseQ
from tests.cases import thinned
from tests.engine.drafters.golden import DRAFTERS, GOLDEN, Golden, golden_target

SAMPLINGS = {
    "greedy": Sampling(),
    "seeded": Sampling(temperature=1.0, seed=4),
    "free": Sampling(temperature=1.0),
    "free, truncated": Sampling(temperature=0.8, top_k=40, top_p=0.9, min_p=0.01, repetition_penalty=1.1),
}
TOKENS = 12


def spoilt(golden: Golden, target: Any, weight: str = "o_proj.weight", value: float = math.inf, **kwargs: Any) -> Any:
    """The golden file with one bad number in every tensor of that name."""
    checkpoint = read_checkpoint(golden.folder)
    tensors = dict(checkpoint.tensors)
    names = [name for name in tensors if name.endswith(weight)]
    assert names, weight
    for name in names:
        tensor = mx.array(tensors[name])
        tensor[(0,) * tensor.ndim] = value
        tensors[name] = tensor
    return build(checkpoint._replace(tensors=tensors), target, **kwargs)


def decode(golden: Golden, parts: tuple[Any, ...], sampling: Sampling, **kwargs: Any) -> Run:
    """With the same draws whoever drafts: a plain round of an unseeded answer draws as a refused draft's does."""
    target = golden_target(golden.target)
    run: Any = Run
    return run(target, golden.json["prompts"][0], Chain("x", parts), max_tokens=TOKENS, sampling=sampling, **kwargs)


@pytest.fixture(autouse=True)
def _same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sampling.sampler.secrets.randbits", lambda bits: 20261201)


@pytest.mark.parametrize(("name", "law"), thinned(DRAFTERS, SAMPLINGS))
def test_the_text_is_the_plain_one(name: str, law: str) -> None:
    """Greedy, seeded and free: where q is no law, the target's own is drawn from, with the noise of a plain round."""
    golden, sampling = Golden(name), SAMPLINGS[law]
    drafter = spoilt(golden, golden_target(golden.target))
    plain, run = decode(golden, (), sampling), decode(golden, (drafter,), sampling)
    assert run.output == plain.output
    assert len(set(run.output)) > 4
    assert run.sequence.distrusted == {drafter.name}
    asked = [r.index for r in run.rounds if r.drafted]
    assert asked == [1], "parked for the rest of the answer"
    assert run.loop.evaluations == len(run.rounds)


WEIGHTS = [
    ("dspark-qwen3", "markov_w2.weight"),
    ("dspark-qwen3", "norm.weight"),
    ("dspark-speculators", "lm_head.weight"),
    ("dflash-zlab", "fc.weight"),
    ("dflash2", "hidden_projection.weight"),
    ("dflash2", "mlp.down_proj.weight"),
]


@pytest.mark.parametrize(("place", "law"), thinned(WEIGHTS, SAMPLINGS))
def test_wherever_the_bad_number_stands(place: tuple[str, str], law: str) -> None:
    (name, weight), sampling = place, SAMPLINGS[law]
    golden = Golden(name)
    drafter = spoilt(golden, golden_target(golden.target), weight, math.nan)
    plain, run = decode(golden, (), sampling), decode(golden, (drafter,), sampling)
    assert run.sequence.distrusted == {drafter.name}
    if sampling.greedy or sampling.seed is not None or len(run.rounds) == len(plain.rounds):
        assert run.output == plain.output


@pytest.mark.parametrize("by", ["threshold", "value"])
@pytest.mark.parametrize("sampling", ["greedy", "free"])
def test_a_confidence_that_is_no_number_does_not_decide_the_length(by: str, sampling: str) -> None:
    golden = Golden("dspark-qwen3")
    drafter = spoilt(golden, golden_target(golden.target), "confidence_head.proj.weight", math.nan)
    drafter.threshold, drafter.costs = (0.5, None) if by == "threshold" else (0.0, lambda k: 4.0 + k)
    run = decode(golden, (drafter,), SAMPLINGS[sampling], cap=5)
    assert len(run.rounds[1].drafted) == 5
    assert run.sequence.distrusted == {"dspark"}
    assert run.output == decode(golden, (), SAMPLINGS[sampling]).output or sampling == "free"


def test_lookup_goes_on_without_it() -> None:
    golden = Golden("dspark-qwen3")
    target = golden_target(golden.target)
    prompt = (golden.json["prompts"][0][:9] * 4)[:30]
    parts = (Lookup(LookupSettings(min_n=2)), spoilt(golden, target))
    run: Any = Run(target, prompt, Chain("x", parts), max_tokens=40)
    assert run.output == Run(target, prompt, max_tokens=40).output
    assert run.sequence.distrusted == {"dspark"}
    drafted = [r.source for r in run.rounds if r.drafted]
    assert drafted.count(Source.DRAFT) <= 1
    assert Source.LOOKUP in drafted


# In the engine --------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine]:
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", options=Options(cap="full", max_batch=3)) as made:
        yield made


@pytest.mark.parametrize("name", ["dspark-qwen3", "dflash-zlab", "dflash2"])
def test_it_is_named_once_and_asked_again_by_the_next_answer(
    engine: Engine, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    golden = Golden(name)
    engine.offered.add(engine.run_exclusive(lambda: spoilt(golden, engine.target, name="bad")))
    prompts = golden.json["prompts"][:3]
    with caplog.at_level(logging.WARNING, logger="dspark.drafters"):
        for _ in range(2):
            tickets = [
                engine.submit(Request(p, max_tokens=TOKENS, drafter="bad", sampling=law, stop_ids=frozenset()))
                for p, law in zip(prompts, SAMPLINGS.values(), strict=False)
            ]
            answers = [list(ticket) for ticket in tickets]
            assert all(isinstance(events[-1], Finished) for events in answers)
            for events in answers:
                assert sum(bool(e.drafted) for e in events if isinstance(e, Round)) == 1
            greedy = answers[0][-1]
            assert isinstance(greedy, Finished)
            assert list(greedy.tokens) == golden.json["plain_greedy"][0][:TOKENS]
    details = {d.name: d.detail for d in engine.drafters}
    assert "no probabilities" in details["bad"]
    assert details["lookup+bad"] == details["bad"]
    assert details["lookup"] == ""
    assert len([r for r in caplog.records if "no probabilities" in r.message]) == 1


# Hostile proposals ----------------------------------------------------------------------------------------------------

V = 8
TABLE = mx.random.normal((V, V), key=mx.random.key(5))
IDS = [-1, V, 10**6, -(2**31)]


class Hostile(ScriptedDrafter):
    """Proposes what it likes, more than it was asked for, with a q that it likes."""

    def __init__(self, ids: list[int], q: Callable[[list[int]], Any]) -> None:
        super().__init__(lambda _ids, _k: ids)
        self._q = q

    def propose(self, context: Any, pending: int, k: int, sampler: Any) -> Proposal:
        ids = self.script([], k)
        return Proposal(mx.array(ids, dtype=mx.int32), self.source, self._q(ids), drafter=self.name)


QS: dict[str, Callable[[list[int]], Any]] = {
    "point": lambda ids: None,
    "dense": lambda ids: DenseQ(mx.full((len(ids), V), 1 / V)),
    "too wide": lambda ids: DenseQ(mx.full((len(ids), V + 3), 1 / (V + 3))),
    "too narrow": lambda ids: DenseQ(mx.full((len(ids), V - 3), 1 / (V - 3))),
    "sparse": lambda ids: SparseQ(mx.array([[i] for i in ids], dtype=mx.int32), mx.ones((len(ids), 1))),
}


@pytest.mark.parametrize("q", QS)
@pytest.mark.parametrize("sampling", ["greedy", "seeded", "free"])
@pytest.mark.parametrize("bad", IDS)
def test_no_id_outside_the_vocabulary_is_used(bad: int, sampling: str, q: str) -> None:
    seen: list[int] = []

    class Watched(TableTarget):
        def body(self, ids: mx.array, *args: Any, **kwargs: Any) -> Any:
            seen.extend(mx.flatten(ids).tolist())  # type: ignore[arg-type]
            return super().body(ids, *args, **kwargs)

    chain = Chain("x", (Hostile([3, bad, 1, 2, 0, 1], QS[q]),))
    law = SAMPLINGS[sampling]
    run = Run(Watched(TABLE), [0], chain, max_tokens=TOKENS, sampling=law, cap=4, stop_ids=frozenset())
    assert all(0 <= token < V for token in seen + run.output)
    assert all(len(r.drafted) <= 4 for r in run.rounds)
    assert run.sequence.distrusted == {"scripted"}
    if sampling != "free":
        assert run.output == Run(TableTarget(TABLE), [0], max_tokens=TOKENS, sampling=law, stop_ids=frozenset()).output

"""Rows of a batch draft in one forward: what each is given is what it would have been given alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from fakes import ByteTokenizer

from engine.calibration.controlled_run import Run
from engine.decoding.batch import Batch, RowFailed
from engine.decoding.draft_length.policy import Pinned
from engine.decoding.loop import Loop
from engine.drafters.chain import Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.sampling.sampler import RowSampler
from engine.types import Request, Round, Sampling
from tests.engine.drafters.golden import DRAFTERS, Golden, golden_target

CAPS = (7, 2, 5)
LENGTHS = (9, 14, 12)
SAMPLED = Sampling(temperature=0.8, top_p=0.9)
PENALISED = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.4, frequency_penalty=0.7, logit_bias={3: 1.5})


class Counted:
    """Blocks of a drafter that ran, by how many rows they had."""

    def __init__(self, drafter: Any) -> None:
        self.rows: list[int] = []
        self._block = drafter.block
        drafter.block = self

    def __call__(self, contexts: Any, pendings: Any, k: int) -> mx.array:
        self.rows.append(len(contexts))
        return self._block(contexts, pendings, k)


def prompts(golden: Golden) -> list[list[int]]:
    """Of several lengths; the second repeats itself, which is what lookup is for."""
    given: list[list[int]] = golden.json["prompts"]
    first = given[0]
    return [first, (first[:9] * 4)[:30], given[1 % len(given)][:11]]


def rows_of(golden: Golden, drafter: Any, loop: Loop, hybrid: bool = False) -> list[Run]:
    """One run a prompt, each with a draft length and an end of its own."""
    runs: list[Run] = []
    for i, prompt in enumerate(prompts(golden)):
        parts = (Lookup(LookupSettings(min_n=2)), drafter) if hybrid and i != 0 else (drafter,)
        request = Request(prompt, id=str(i), max_tokens=LENGTHS[i], stop_ids=frozenset())
        runs.append(Run(loop, ByteTokenizer(), Chain("x", parts), request, Pinned(CAPS[i])))  # type: ignore[arg-type]
    return runs


def join(batch: Batch, run: Run) -> None:
    assert run.batch.state is not None
    batch.join(run.sequence, run.batch.state)


def decode(loop: Loop, batch: Batch, late: dict[int, Run] | None = None) -> list[Round]:
    """To the end of all; `late`: who joins after so many rounds."""
    rounds: list[Round] = []
    at = 0
    while batch.sequences:
        rounds += [event for event in loop.step(batch) if isinstance(event, Round)]
        at += 1
        if late and at in late:
            join(batch, late[at])
        gone = [s for s in batch.sequences if s.finish.reason]
        if gone:
            batch.leave(gone)
    return rounds


def of(rounds: list[Round], request: str) -> list[tuple[Any, ...]]:
    return [(r.source, r.drafted, r.tokens) for r in rounds if r.request == request]


def alone(golden: Golden, drafter: Any, loop: Loop, hybrid: bool = False) -> dict[str, list[tuple[Any, ...]]]:
    expected: dict[str, list[tuple[Any, ...]]] = {}
    for run in rows_of(golden, drafter, loop, hybrid):
        expected[run.sequence.request.id] = of(decode(loop, run.batch), run.sequence.request.id)
    return expected


@pytest.fixture(params=DRAFTERS)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


@pytest.mark.parametrize("hybrid", [False, True], ids=["alone", "after lookup"])
def test_rows_get_what_they_would_get_alone(golden: Golden, hybrid: bool) -> None:
    """Mixed draft lengths, mixed depths, lookup between, a row that joins late and rows that leave early."""
    target = golden_target(golden.target)
    drafter, loop = golden.load(target), Loop(target)
    expected = alone(golden, drafter, loop, hybrid)
    counted, batch = Counted(drafter), Batch()
    first, second, third = rows_of(golden, drafter, loop, hybrid)
    join(batch, first)
    join(batch, second)
    rounds = decode(loop, batch, {2: third})
    for request, what in expected.items():
        assert of(rounds, request) == what, request
    assert max(counted.rows) == 3


def test_one_forward_a_round(golden: Golden) -> None:
    target = golden_target(golden.target)
    drafter, loop, batch = golden.load(target), Loop(target), Batch()
    for run in rows_of(golden, drafter, loop):
        join(batch, run)
    counted = Counted(drafter)
    for _ in range(3):
        before = loop.evaluations
        assert all(event.drafted for event in loop.step(batch) if isinstance(event, Round))
        assert loop.evaluations == before + 1
    assert counted.rows == [3, 3, 3]


@pytest.mark.parametrize("name", ["dspark-qwen3", "dspark-qwen3-rnn", "dspark-speculators", "dflash-zlab", "dflash2"])
@pytest.mark.parametrize("seed", [None, 5], ids=["rejection", "coupled"])
def test_sampled_rows_draw_what_they_would_draw_alone(name: str, seed: int | None) -> None:
    """A draw is addressed by what it is for: neighbours do not change it. One row's law may differ from the others'."""
    golden = Golden(name)
    target = golden_target(golden.target)
    drafter = golden.load(target)
    for odd in (
        None,
        Sampling(temperature=1.1, top_k=9, seed=seed),
        Sampling(),
        PENALISED,
        replace(PENALISED, seed=seed),
    ):
        sampling = Sampling(temperature=0.8, top_p=0.9, seed=seed)
        contexts: list[Any] = []
        samplers: list[RowSampler] = []
        for i in range(3):
            context = drafter.new_context()
            features = mx.random.normal((5 + 4 * i, len(drafter.taps) * 128), key=mx.random.key(i))
            drafter.observe(context, features, 0, [0] * features.shape[0])
            contexts.append(context)
            law = odd if odd is not None and i == 1 else sampling
            samplers.append(RowSampler(law, [0, 40, 41], target.spec.vocab_size))
            samplers[-1].commit([9, 9, i])
            samplers[-1]._base, samplers[-1].round = 40 + i, 3
        pendings, ks = [5, 9, 13], [4, drafter.max_draft, 2]
        together = drafter.propose_rows(contexts, pendings, ks, samplers)
        for proposal, *one in zip(together, contexts, pendings, ks, samplers, strict=True):
            single = drafter.propose(*one)
            assert proposal.tokens.tolist() == single.tokens.tolist()
            assert len(proposal) == one[2]
            assert type(proposal.q) is type(single.q)
            if single.q is not None:
                for field in single.q.__slots__:
                    assert mx.allclose(getattr(proposal.q, field), getattr(single.q, field), atol=1e-6)


class Broken(RowSampler):
    def draw(self, logits: mx.array, position: int, ids: mx.array | None = None) -> Any:
        raise RuntimeError("this row cannot draw")

    draw_rows = draft_noise = draw  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["dspark-qwen3", "dflash-zlab", "dflash2"])
def test_a_row_that_fails_fails_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    golden = Golden(name)
    target = golden_target(golden.target)
    drafter, loop, batch = golden.load(target), Loop(target), Batch()
    expected, runs = alone(golden, drafter, loop), rows_of(golden, drafter, loop)
    broken = Broken(SAMPLED, [0], target.spec.vocab_size)
    runs[1].sequence.sampler = broken
    for run in runs:
        join(batch, run)
    with pytest.raises(RowFailed, match="cannot draw") as failed:
        loop.step(batch)
    assert failed.value.sequence is runs[1].sequence
    assert "together" in caplog.text
    batch.leave([runs[1].sequence])
    rounds = decode(loop, batch)
    for request in ("0", "2"):
        assert of(rounds, request) == expected[request], request


def test_a_block_looks_at_its_own_context_and_rows_only() -> None:
    """The convolutions of DFlash 2 reach back over rows, and rows of all blocks are stacked."""
    golden = Golden("dflash2")
    drafter = golden.load()
    contexts: list[Any] = []
    for i in range(2):
        context = drafter.new_context()
        features = mx.random.normal((6 + i, len(drafter.taps) * 128), key=mx.random.key(i))
        drafter.observe(context, features, 0, [0] * features.shape[0])
        contexts.append(context)
    both = drafter.block(contexts, [5, 9], 7)
    for i, pending in enumerate([5, 9]):
        own = drafter.block([contexts[i]], [pending], 7)
        assert mx.allclose(both[i * own.shape[0] : (i + 1) * own.shape[0]], own, atol=1e-5)

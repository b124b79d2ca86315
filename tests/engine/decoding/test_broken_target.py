"""A target whose output is no number ends the answers that meet it with a sentence, and no other; nor is there ever a
token where nothing is left to choose from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakes import FixedIdle, Run, ScriptedDrafter, TableTarget, counting_target

from engine.drafters.chain import Chain
from engine.engine import Engine, Options
from engine.errors import BrokenLogits, UsageError
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.types import Failed, Finished, Request, Round, Sampling

TARGET = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"
GIVEN: dict[str, Any] = json.loads((TARGET / "golden" / "expected.json").read_text())
PROMPTS: list[list[int]] = GIVEN["prompts"]
LAWS = {
    "greedy": Sampling(),
    "seeded": Sampling(temperature=1.0, seed=3),
    "free": Sampling(temperature=1.0, top_p=0.9),
    "penalties": Sampling(repetition_penalty=1.2),
}
TOKENS = 12


@pytest.fixture(params=[0.0, 1.0], ids=["waiting", "running ahead"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Plain rounds that wait for the one before them, and that do not."""
    monkeypatch.setattr("engine.decoding.loop.Idle", lambda: FixedIdle(request.param))
    with open_engine(TARGET, options=Options(max_batch=3, cache=PrefixCache(1 << 20))) as made:
        yield made


def spoil(engine: Engine, word: int, value: float) -> None:
    """From now on the model has no numbers for this word."""

    def work() -> None:
        embedding: Any = engine.target.model.model.embed_tokens  # type: ignore[attr-defined]

        class Spoilt(type(embedding)):  # type: ignore[misc]
            def __call__(self, ids: mx.array) -> mx.array:
                return mx.where((ids == word)[..., None], value, super().__call__(ids))

        embedding.__class__ = Spoilt

    engine.run_exclusive(work)


def ask(engine: Engine, prompt: list[int], **kwargs: Any) -> Any:
    return engine.submit(Request(prompt, max_tokens=TOKENS, stop_ids=frozenset(), **kwargs))


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_the_row_that_meets_it_fails_alone(engine: Engine, value: float) -> None:
    plain = [list(list(ask(engine, p, remember=False))[-1].tokens) for p in PROMPTS[:4]]
    others = {i: {*PROMPTS[i], *plain[i]} for i in range(4)}
    mine, at, other = next(
        (i, at, j)
        for i in range(4)
        for at in range(3, TOKENS - 2)
        for j in range(4)
        if plain[i][at] not in {*PROMPTS[i], *plain[i][:at]} | others[j]
    )
    spoil(engine, plain[mine][at], value)
    bad, good = [list(ticket) for ticket in [ask(engine, PROMPTS[i], drafter="lookup") for i in (mine, other)]]
    assert isinstance(bad[-1], Failed)
    assert isinstance(bad[-1].error, BrokenLogits)
    assert "no longer a number" in bad[-1].message
    assert [t for e in bad if isinstance(e, Round) for t in e.tokens] == plain[mine][: at + 1]
    assert isinstance(good[-1], Finished)
    assert list(good[-1].tokens) == plain[other]
    again = list(ask(engine, PROMPTS[mine] + plain[mine][: at + 1]))
    assert isinstance(again[-1], Failed), "nothing of it is served from the cache"


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_a_prompt_that_holds_it_has_no_answer(engine: Engine, law: Sampling) -> None:
    spoil(engine, PROMPTS[0][1], math.nan)
    events = list(ask(engine, PROMPTS[0], sampling=law))
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, BrokenLogits)
    assert not any(isinstance(e, Round) for e in events)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("k", [0, 4])
def test_drafts_do_not_lead_past_it(law: Sampling, value: float, k: int) -> None:
    """Token 0, which the best of no numbers is, is not taken for one, also where it was drafted."""
    after_five = mx.full((1, 8), value) if value < 0 else mx.array([[0.0, value, *[0.0] * 6]])
    table = mx.concatenate([10.0 * counting_target(8).table[:5], after_five, counting_target(8).table[6:]])
    chain = Chain("x", (ScriptedDrafter(lambda ids, k: [5, 0, 0, 0][:k]),))
    events: list[Any] = []
    with pytest.raises(BrokenLogits):
        Run(TableTarget(table), [3], chain, cap=k, max_tokens=9, sampling=law, stop_ids=frozenset(), events=events)
    assert [t for e in events if isinstance(e, Round) for t in e.tokens] == [4, 5]


class Nothing:
    """A constraint that no token meets."""

    needs_draft = False

    def trim(self, drafts: Sequence[int]) -> int:
        return len(drafts)

    def rows(self, logits: mx.array, drafts: mx.array) -> mx.array:
        return mx.full(logits.shape, -math.inf)

    def commit(self, tokens: Sequence[int]) -> None: ...


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("seed", [None, 3])
def test_a_constraint_that_leaves_nothing_is_the_request_s_fault(temperature: float, seed: int | None) -> None:
    law = Sampling(temperature=temperature, seed=seed)
    with pytest.raises(UsageError, match="leave no token"):
        Run(counting_target(8), [0], max_tokens=4, sampling=law, processors=(Nothing(),))


@pytest.mark.parametrize(
    "law",
    [
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"min_p": 1.01},
        {"top_p": -0.1},
        {"repetition_penalty": 0.0},
        {"frequency_penalty": math.inf},
        {"logit_bias": dict.fromkeys(range(8), -math.inf)},
        {"logit_bias": {1: math.nan}},
    ],
    ids=str,
)
def test_a_law_that_would_leave_nothing_is_not_made(law: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(law))):
        Sampling(**law)


@pytest.mark.parametrize(
    "law", [{"top_p": 0.0}, {"min_p": 1.0}, {"temperature": 1e-40}, {"logit_bias": dict.fromkeys(range(8), -100)}]
)
def test_a_law_at_its_limits_leaves_a_token(law: dict[str, Any]) -> None:
    run = Run(counting_target(8), [0], max_tokens=4, sampling=Sampling(**{"temperature": 1.0, **law}))
    assert len(run.output) == 4

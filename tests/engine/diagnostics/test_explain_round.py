"""What is computed again of a round equals what decoding used: p, the request's law, and the drafter's q."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.diagnostics.explain_round import Examination, Replay, examine
from engine.drafters.load import load_drafter
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.sampling.sampler import RowSampler, transform
from engine.types import Proposal, Request, Round, Sampling
from tests.cases import thinned
from tests.engine.drafters.golden import GOLDEN, Golden

NAMES = ("dspark-qwen3", "dflash-zlab-swa")
SAMPLINGS = {
    "greedy": Sampling(),
    "sampled": Sampling(temperature=0.8, top_k=40, top_p=0.95),
    "seeded": Sampling(temperature=0.9, min_p=0.02, seed=7),
    "penalised": Sampling(temperature=0.7, presence_penalty=0.5, repetition_penalty=1.2),
}
NEAR = 2e-5


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    options = Options(cache=PrefixCache(64 << 20), cap="full")
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", options=options) as made:
        for name in NAMES:
            folder = GOLDEN / "drafters" / name
            made.add_drafter(made.run_exclusive(lambda f=folder, n=name: load_drafter(f, made.target, name=n)))
        yield made


class Recorded:
    """The law of every draft as decoding computed it, by the place of the block's first draft."""

    def __init__(self, engine: Engine, name: str, patch: pytest.MonkeyPatch) -> None:
        self.laws: dict[int, list[np.ndarray]] = {}
        self.confidence: dict[int, list[float]] = {}
        self._drawn: list[tuple[mx.array | None, mx.array]] = []
        self._vocab = engine.spec.vocab_size
        draw, part = RowSampler.draw, engine.chain(name).parts[-1]
        propose = part.propose

        def heard(sampler: RowSampler, logits: mx.array, position: int, ids: mx.array | None = None) -> Any:
            self._drawn.append((ids, logits))
            return draw(sampler, logits, position, ids)

        def heard_rows(sampler: RowSampler, logits: mx.array, position: int) -> Any:
            drawn = [heard(sampler, logits[i], position + i) for i in range(logits.shape[0])]
            laws = [law for _, law in drawn if law is not None]
            return mx.stack([token for token, _ in drawn]), mx.stack(laws) if laws else None

        def listening(context: Any, pending: int, k: int, sampler: RowSampler) -> Proposal:
            self._drawn = []
            made = propose(context, pending, k, sampler)
            if not isinstance(sampler, Replay):
                place = context.length + 1
                self.laws[place] = [self._law(ids, logits, sampler.sampling) for ids, logits in self._drawn]
                self.confidence[place] = [] if made.confidence is None else made.confidence.tolist()
            return made

        patch.setattr(RowSampler, "draw", heard)
        patch.setattr(RowSampler, "draw_rows", heard_rows)
        patch.setattr(part, "propose", listening)

    def _law(self, ids: mx.array | None, logits: mx.array, sampling: Sampling) -> np.ndarray:
        law = mx.softmax(logits.astype(mx.float32)) if sampling.greedy else transform(logits, sampling)
        out = np.zeros(max(self._vocab, law.shape[0]))
        out[slice(None, law.shape[0]) if ids is None else np.array(ids)] = np.array(law)
        return out


def fresh(engine: Engine, tokens: list[int], rows: int) -> mx.array:
    """Logits of the last rows of one forward over all tokens, from nothing."""
    state = engine.target.new_state()
    with state.begin(len(tokens), record=False) as transaction:
        body = engine.target.body(mx.array([tokens], dtype=mx.int32), state)
        transaction.commit(len(tokens))
    return engine.target.logits(body.hidden)[0, -rows:].astype(mx.float32)


def answered(engine: Engine, drafter: str, sampling: Sampling, **more: Any) -> tuple[list[int], list[Round]]:
    """(prompt, rounds)."""
    prompt = Golden("dspark-qwen3").json["prompts"][0]
    request = Request(prompt, max_tokens=24, drafter=drafter, sampling=sampling, stop_ids=frozenset(), **more)
    return prompt, [e for e in engine.submit(request) if isinstance(e, Round)]


def check_p(
    engine: Engine, seen: Examination, before: list[int], prompt: int, round_: Round, sampling: Sampling
) -> None:
    def reference() -> tuple[np.ndarray, np.ndarray]:
        logits = fresh(engine, [*before, *round_.drafted], 1 + len(round_.drafted))
        sampler = RowSampler(sampling, before[:prompt], engine.spec.vocab_size)
        sampler.commit(before[prompt:])
        drafts = mx.array(list(round_.drafted), dtype=mx.int32)
        law = logits if sampling.greedy else sampler.probs(sampler.processed(logits, drafts))
        return np.array(mx.softmax(logits, axis=-1)), np.array(law)

    p, law = engine.run_exclusive(reference)
    assert [place.chosen.token for place in seen.places] == list(round_.tokens)
    for row, place in enumerate(seen.places):
        chances = [place.chosen, *place.best, *([place.draft] if place.draft else [])]
        assert place.best[0].p == pytest.approx(p[row].max(), abs=NEAR)
        assert [c.p for c in place.best] == sorted((c.p for c in place.best), reverse=True)
        for chance in chances:
            assert chance.p == pytest.approx(p[row, chance.token], abs=NEAR)
            if sampling.greedy:
                assert chance.law is None
            else:
                assert chance.law == pytest.approx(law[row, chance.token], abs=NEAR)


@pytest.mark.parametrize(("name", "kind"), thinned(NAMES, SAMPLINGS))
def test_p_and_q_are_those_of_the_round(engine: Engine, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = SAMPLINGS[kind]
    recorded = Recorded(engine, name, monkeypatch)
    prompt, rounds = answered(engine, name, sampling)
    text = [*prompt, *(t for r in rounds for t in r.tokens)]
    drafting = [r for r in rounds if r.drafted]
    assert len(drafting) > 2
    assert any(r.accepted < len(r.drafted) for r in drafting)
    for round_ in [rounds[0], *drafting]:
        before = text[: round_.start]
        seen = examine(engine, before, len(prompt), round_, sampling)
        check_p(engine, seen, before, len(prompt), round_, sampling)
        assert not seen.copied
        laws, sure = recorded.laws.get(round_.start, []), recorded.confidence.get(round_.start, [])
        for row, place in enumerate(seen.places):
            if row >= len(round_.drafted):
                assert place.draft is None
                continue
            assert place.draft is not None
            assert place.draft.token == round_.drafted[row]
            for chance in (place.draft, *place.best):
                assert chance.q == pytest.approx(laws[row][chance.token], abs=NEAR)
            if sure:
                assert place.confidence == pytest.approx(sure[row], abs=NEAR)
    assert bool(recorded.confidence[drafting[0].start]) is (name == "dspark-qwen3")


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_a_copied_draft_has_all_the_mass(engine: Engine, kind: str) -> None:
    sampling = SAMPLINGS[kind]
    prompt, rounds = answered(engine, "lookup", sampling)
    text = [*prompt, *(t for r in rounds for t in r.tokens)]
    drafting = [r for r in rounds if r.drafted]
    assert drafting or kind == "sampled"
    for round_ in drafting:
        before = text[: round_.start]
        seen = examine(engine, before, len(prompt), round_, sampling)
        check_p(engine, seen, before, len(prompt), round_, sampling)
        assert seen.copied
        for place in seen.places:
            assert place.draft is None or place.draft.q == 1.0
            assert all(c.q in (0.0, 1.0, None) for c in place.best)


def test_from_the_cache_and_from_nothing_it_is_the_same(engine: Engine) -> None:
    """After the answer the cache holds it; before, or without a cache, everything is read again."""
    prompt, rounds = answered(engine, "dspark-qwen3", Sampling())
    text = [*prompt, *(t for r in rounds for t in r.tokens)]
    last = [r for r in rounds if r.drafted][-1]
    warm = examine(engine, text[: last.start], len(prompt), last, Sampling())
    assert warm.cached > len(prompt)
    cache, engine.options.cache = engine.options.cache, None
    try:
        cold = examine(engine, text[: last.start], len(prompt), last, Sampling())
    finally:
        engine.options.cache = cache
    assert cold.cached == 0
    for a, b in zip(warm.places, cold.places, strict=True):
        assert a.chosen.p == pytest.approx(b.chosen.p, abs=NEAR)
        assert (a.draft is None) is (b.draft is None)
        if a.draft is not None and b.draft is not None:
            assert a.draft.q == pytest.approx(b.draft.q, abs=NEAR)


def test_looking_changes_nothing(engine: Engine) -> None:
    prompt, rounds = answered(engine, "dspark-qwen3", Sampling())
    text = [*prompt, *(t for r in rounds for t in r.tokens)]
    before = engine.cache_stats
    for round_ in rounds:
        examine(engine, text[: round_.start], len(prompt), round_, Sampling())
    after = engine.cache_stats
    assert before is not None
    assert after is not None
    assert (after.hits, after.tokens_asked, after.tokens_served) == (
        before.hits,
        before.tokens_asked,
        before.tokens_served,
    )
    _, again = answered(engine, "dspark-qwen3", Sampling())
    assert [r.tokens for r in again] == [r.tokens for r in rounds]


def test_a_drafter_that_is_gone_is_named(engine: Engine) -> None:
    prompt, rounds = answered(engine, "dspark-qwen3", Sampling())
    from dataclasses import replace

    round_ = replace(next(r for r in rounds if r.drafted), drafter="gone", chain="gone")
    text = [*prompt, *(t for r in rounds for t in r.tokens)]
    seen = examine(engine, text[: round_.start], len(prompt), round_, Sampling())
    assert "gone is not loaded" in seen.note
    assert all(place.draft is None or place.draft.q is None for place in seen.places)
    with pytest.raises(ValueError, match="begins at"):
        examine(engine, text[: round_.start - 1], len(prompt), round_, Sampling())

"""Faults that users of other programs reported, as they would show here: hybrids, windows, batches."""

from __future__ import annotations

import mlx.core as mx
import pytest
from fakes import Run, ScriptedDrafter

from engine.drafters.chain import Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.prefix_cache.cache import PrefixCache
from tests.engine.targets.conftest import Tiny
from tests.engine.targets.feeding import distance, feed, prefilled, recurrent_slots, same, tokens_of

HYBRIDS = ["qwen3_5", "nemotron_h", "lfm2"]
TOLERANCE = {"nemotron_h": 2e-5}
PROMPT = tokens_of(24)


@pytest.mark.parametrize("wrong", [1, 2])
@pytest.mark.parametrize("family", HYBRIDS)
def test_rejected_drafts_do_not_stay_in_the_state(tiny: Tiny, family: str, wrong: int) -> None:
    """Always wrong and half wrong drafters; every state array is that of a forward over the committed tokens (O10)."""
    target = tiny(family)
    plain = Run(target, PROMPT, max_tokens=24).output

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(PROMPT)
        return [(t + ((at + i) % wrong == 0)) % 288 for i, t in enumerate(plain[at : at + k])]

    run = Run(target, PROMPT, Chain("s", (ScriptedDrafter(script),)), max_tokens=24, cap=5)
    assert run.output == plain
    fresh = target.new_state()
    feed(target, fresh, run.sequence.tokens[:-1], record=False)
    gap = distance(recurrent_slots(run.state), recurrent_slots(fresh))
    assert gap < 1e-4  # a fresh forward sums attention over many rows in another order
    stepped = prefilled(target, PROMPT)
    for token in run.sequence.tokens[len(PROMPT) : -1]:
        feed(target, stepped, [token])
    assert distance(recurrent_slots(run.state), recurrent_slots(stepped)) <= TOLERANCE.get(family, 0.0)


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("family", HYBRIDS)
def test_copies_on_hybrids_lose_no_character(tiny: Tiny, family: str, k: int) -> None:
    """Lookup at every draft length, on a prompt that repeats itself (O11)."""
    target = tiny(family)
    prompt = tokens_of(90) + Run(target, PROMPT, max_tokens=12).output + PROMPT
    plain = Run(target, prompt, max_tokens=16).output
    run = Run(target, prompt, Chain("lookup", (Lookup(LookupSettings(min_n=1)),)), max_tokens=16, cap=k)
    assert run.output == plain
    assert run.sequence.usage.drafted


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_restored_state_can_do_all_that_a_cold_one_can(tiny: Tiny, family: str) -> None:
    """Turn 2 extends turn 1, hits the cache, and speculates as a cold run does (O12)."""
    target = tiny(family)
    chain = Chain("lookup", (Lookup(LookupSettings(min_n=1)),))
    cache = PrefixCache(64 * 2**20)
    marks = (len(PROMPT) - 1,)
    first = Run(target, PROMPT, chain, max_tokens=8, cap=4, cache=cache, boundaries=marks)
    prompt = PROMPT + first.output + tokens_of(6, seed=5)
    warm = Run(target, prompt, chain, max_tokens=12, cap=4, cache=cache, boundaries=(len(prompt) - 1,))
    cold = Run(target, prompt, chain, max_tokens=12, cap=4)
    assert warm.sequence.usage.cached >= marks[0]
    assert warm.output == cold.output
    assert [type(x) for x in warm.state.layers] == [type(x) for x in cold.state.layers]


@pytest.mark.parametrize("family", ["gemma4_text", "gemma4_dense", "muse_glimmer"])
def test_a_window_is_cut_exactly_or_not_at_all(tiny: Tiny, family: str) -> None:
    """A short shared prefix of a conversation that has passed its window (O15)."""
    target = tiny(family)
    tokens = tokens_of(140)
    whole = prefilled(target, tokens[:100])
    for token in tokens[100:]:
        feed(target, whole, [token])
    snap = whole.snapshot()
    refused = 0
    for shared in (*range(41), 100, 120, 139, 140):
        if shared < snap.trimmable_from:
            refused += 1
            with pytest.raises(ValueError, match="covers"):
                target.new_state().restore(snap, shared)
            continue
        warm = target.new_state()
        warm.restore(snap, shared)
        after = tokens_of(5, seed=8)
        cold = prefilled(target, tokens[:shared]) if shared else target.new_state()
        assert distance([feed(target, warm, after)], [feed(target, cold, after)]) < 2e-5
        assert distance([feed(target, warm, [3])], [feed(target, cold, [3])]) < 2e-5
    assert refused >= 41, "the window was never passed"


@pytest.mark.parametrize("lengths", [(11, 2), (1, 12), (3, 3), (2, 7), (12, 11), (1, 1)])
@pytest.mark.parametrize("family", HYBRIDS)
def test_rows_of_mixed_length_do_not_pad_each_other(tiny: Tiny, family: str, lengths: tuple[int, int]) -> None:
    """Padding must not reach a recurrent state (O43)."""
    target = tiny(family)
    singles = [prefilled(target, tokens_of(n, seed=n)) for n in lengths]
    batch = same(target, singles[0].snapshot())
    batch.extend(same(target, singles[1].snapshot()))
    for keeps in ((4, 1), (2, 4), (1, 3)):
        rows = [tokens_of(4, seed=sum(keeps) + b) for b in range(2)]
        with batch.begin(4) as round:
            logits = target.logits(target.body(mx.array(rows), batch).hidden)
            round.commit(keeps)
        for b, single in enumerate(singles):
            assert distance([feed(target, single, rows[b], keeps[b])], [logits[b]]) < 2e-5


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", *HYBRIDS, "muse_glimmer"])
def test_a_row_does_not_depend_on_its_neighbours_content(tiny: Tiny, family: str) -> None:
    """Bit for bit, for neighbours of equal length; equal rows stay equal (O44)."""
    target = tiny(family)
    found: list[mx.array] = []
    for neighbour in (1, 2, 3):
        batch = prefilled(target, tokens_of(12))
        batch.extend(prefilled(target, tokens_of(12, seed=neighbour)))
        batch.extend(prefilled(target, tokens_of(12)))
        rows = [tokens_of(3), tokens_of(3, seed=neighbour), tokens_of(3)]
        with batch.begin(3) as round:
            logits = target.logits(target.body(mx.array(rows), batch).hidden)
            round.commit((2, neighbour, 2))
        assert distance([logits[0]], [logits[2]]) == 0.0
        with batch.begin(1) as round:
            logits = target.logits(target.body(mx.array([[4], [neighbour], [4]]), batch).hidden)
            round.commit(1)
        found.append(logits[0])
    assert distance(found[:2], found[1:]) == 0.0

"""Copies from the context: which occurrence, how long, when long ones are parked; and nothing of another request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import Run, counting_target
from hypothesis import given
from hypothesis import strategies as st

from engine.backend.host_values import ints
from engine.drafters.chain import Chain
from engine.drafters.prompt_lookup import LongDraftGate, Lookup, LookupContext, LookupSettings
from engine.sampling.sampler import RowSampler
from engine.types import Sampling, Source
from tests.cases import examples
from tests.engine.drafters.golden import GOLDEN

CASES = json.loads((GOLDEN / "lookup" / "lookup.json").read_text())["cases"]


def context_of(lookup: Lookup, tokens: list[int]) -> LookupContext:
    context = lookup.new_context()
    lookup.observe(context, None, 0, tokens)
    return context


@pytest.mark.parametrize("case", CASES, ids=[c["description"] for c in CASES])
def test_golden_cases(case: dict[str, Any]) -> None:
    lookup = Lookup(LookupSettings(case["min_n"], case["max_n"], base_draft=case["max_draft"], long_draft=0))
    *before, pending = case["tokens"]
    context = context_of(lookup, before)
    end, n = context.match(pending)
    assert n == case["n"]
    assert (end - n if n else -1) == case["match_start"]
    assert lookup.draft(context, pending, case["max_draft"]) == case["draft"]
    assert context.tokens == before, "asking left a trace"


@examples(200)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.integers(1, 8))
def test_a_draft_follows_the_latest_earlier_occurrence(tokens: list[int], k: int) -> None:
    """Against brute force."""
    lookup = Lookup(LookupSettings(min_n=2, max_n=3, long_draft=0))
    expected: list[int] = []
    for n in (3, 2):
        starts = [i for i in range(len(tokens) - n) if tokens[i : i + n] == tokens[-n:]]
        if len(tokens) > n and starts:
            expected = tokens[starts[-1] + n :][: min(k, lookup.settings.base_draft)]
            break
    assert lookup.draft(context_of(lookup, tokens[:-1]), tokens[-1], k) == expected


def test_a_long_match_earns_a_long_draft() -> None:
    lookup = Lookup()
    text = list(range(100, 300))
    for matched, length in ((7, 6), (8, 16), (12, 24), (40, 32)):
        context = context_of(lookup, [*text, 999, *text[: matched - 1]])
        assert lookup.draft(context, text[matched - 1], 64) == text[matched : matched + length]
        assert len(lookup.draft(context, text[matched - 1], 3)) == 3


def test_long_drafts_are_parked_after_two_misses_and_probed() -> None:
    gate = LongDraftGate(probe_every=8)
    gate.learn(32, 15, base=6)
    assert gate.allows()
    gate.learn(32, 15, base=6)
    assert not gate.allows()
    for _ in range(7):
        gate.learn(6, 0, base=6)
        assert not gate.allows()
    gate.learn(6, 6, base=6)
    assert gate.allows(), "the probe"
    gate.learn(32, 0, base=6)
    assert not gate.allows()
    for _ in range(8):
        gate.learn(6, 0, base=6)
    gate.learn(32, 16, base=6)
    assert gate.allows() and not gate.parked


def test_its_q_is_a_point_mass_at_any_temperature() -> None:
    lookup = Lookup()
    context = context_of(lookup, [1, 2, 3, 4, 5, 1, 2])
    proposal = lookup.propose(context, 3, 6, RowSampler(Sampling(temperature=1.0), [0], 10))
    assert ints(proposal.tokens)[:2] == [4, 5]
    assert (proposal.q, proposal.source) == (None, Source.LOOKUP)


def test_a_snapshot_finds_what_the_original_finds() -> None:
    lookup = Lookup()
    tokens = [1, 2, 3, 4, 5, 6, 7, 1, 2]
    original = context_of(lookup, tokens)
    for length in (9, 8, 4, 0):
        restored = lookup.new_context()
        restored.restore(original.snapshot(), length)
        assert restored.tokens == tokens[:length]
        assert lookup.draft(restored, 3, 6) == lookup.draft(context_of(lookup, tokens[:length]), 3, 6)


def test_o22_nothing_is_drafted_from_another_request() -> None:
    """A long request, then one with other words on the same drafter, and one that is shorter: every proposed token
    occurs in its own request."""
    lookup = Lookup(LookupSettings(min_n=1))
    target = counting_target(200, lambda last: last // 50 * 50 + (last + 1) % 7)
    first = Run(target, [i % 7 for i in range(60)], Chain("lookup", (lookup,)), max_tokens=20)
    assert any(r.drafted for r in first.rounds)
    for prompt in ([150 + i % 7 for i in range(12)], [150], [3]):
        run = Run(target, prompt, Chain("lookup", (lookup,)), max_tokens=20)
        own = {*prompt, *run.output}
        proposed = [t for r in run.rounds for t in r.drafted]
        assert proposed
        assert set(proposed) <= own

"""Golden drafters through the real loop: the reference's rounds, and plain decoding's tokens whatever the setting."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from fakes import Run

from engine.drafters.chain import Chain
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.types import Round
from tests.cases import thinned
from tests.engine.drafters.golden import DRAFTERS, Golden, golden_target

EVERY = os.environ.get("DSPARK_GOLDEN") == "all"
"""Run all eight prompts of each drafter (minutes) instead of two."""
CONFIDENT = [n for n in DRAFTERS if n.startswith("dspark")]


def cases(golden: Golden, results: list[Any]) -> Iterator[tuple[list[int], list[int], Any]]:
    """Prompt, plain tokens and reference, by prompt."""
    rows = list(zip(golden.json["prompts"], golden.json["plain_greedy"], results, strict=True))
    first = DRAFTERS.index(golden.name) % 4
    yield from rows if EVERY else rows[first : first + 2]


def run(golden: Golden, drafter: Any, prompt: list[int], tokens: int, **kwargs: Any) -> Run:
    return Run(golden_target(golden.target), prompt, Chain("x", (drafter,)), max_tokens=tokens, **kwargs)


def check_rounds(ours: list[Round], theirs: list[dict[str, Any]], max_draft: int) -> int:
    """Compare while the budget leaves room for a whole block: afterwards the reference drafts past the end."""
    compared = 0
    for mine, ref in zip(ours, theirs, strict=False):
        if mine.cap < max_draft:
            break
        assert mine.start - 1 == ref["start"]
        assert list(mine.drafted) == ref["drafts"], mine
        assert mine.accepted == ref["accepted"]
        assert list(mine.tokens) == ref["committed"]
        compared += 1
    return compared


@pytest.mark.parametrize("name", thinned(DRAFTERS))
def test_rounds_are_the_references(name: str) -> None:
    golden = Golden(name)
    drafter = golden.load(golden_target(golden.target))
    count = golden.json["max_new_tokens"]
    compared = 0
    total = 0
    for prompt, plain, reference in cases(golden, golden.json["greedy"]):
        ours = run(golden, drafter, prompt, count)
        assert ours.output == plain[:count] == reference["tokens"]
        compared += check_rounds(ours.rounds[1:], reference["rounds"], drafter.max_draft)
        total += len(reference["rounds"])
    assert compared > 0.75 * total


@pytest.mark.parametrize("name", thinned(n for n in reversed(DRAFTERS) if "greedy_with_stop" in Golden(n).json))
def test_a_stop_token_in_the_block_ends_it(name: str) -> None:
    golden = Golden(name)
    drafter = golden.load(golden_target(golden.target))
    runs = golden.json["greedy_with_stop"]
    for prompt, _, reference in cases(golden, runs["results"]):
        ours = run(golden, drafter, prompt, golden.json["max_new_tokens"], stop_ids=frozenset(runs["stop_token_ids"]))
        assert ours.output == reference["tokens"]


@pytest.mark.parametrize("name", thinned(CONFIDENT))
def test_confidence_cuts_where_the_reference_cuts(name: str) -> None:
    golden = Golden(name)
    expected = golden.json["greedy_confidence"]
    drafter = golden.load(golden_target(golden.target), threshold=expected["threshold"])
    for prompt, plain, reference in cases(golden, expected["results"]):
        ours = run(golden, drafter, prompt, golden.json["max_new_tokens"])
        assert ours.output == plain[: golden.json["max_new_tokens"]]
        check_rounds(ours.rounds[1:], reference["rounds"], drafter.max_draft)


@pytest.mark.parametrize(("name", "cap", "hybrid"), thinned(DRAFTERS, (1, 2, 4, 7, None), (False, True), keep=3))
def test_tokens_are_plain_for_every_cap_and_chain(name: str, cap: int | None, hybrid: bool) -> None:
    golden = Golden(name)
    drafter = golden.load(golden_target(golden.target))
    parts = (Lookup(LookupSettings(min_n=2)), drafter) if hybrid else (drafter,)
    prompt, plain = golden.json["prompts"][0], golden.json["plain_greedy"][0]
    ours = Run(golden_target(golden.target), prompt, Chain("x", parts), max_tokens=16, cap=cap)
    assert ours.output == plain[:16]
    assert ours.loop.evaluations == len(ours.rounds)

"""A limit on reasoning holds for every draft length, and touches nothing else."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from engine.sampling.thinking_budget import ReasoningLimit

CLOSER, ENDING, OPENER = (8,), (7, 8, 7), 9


def forced_rows(limit: ReasoningLimit, drafts: list[int]) -> list[int | None]:
    rows = np.array(limit.rows(mx.zeros((len(drafts) + 1, 12)), mx.array(drafts, dtype=mx.int32)))
    return [int(np.argmax(row)) if np.isinf(row).any() else None for row in rows]


def say(limit: ReasoningLimit, script: list[int], width: int, total: int) -> list[int]:
    """Decode with a model that wants `script` and a drafter that proposes it."""
    out: list[int] = []
    while len(out) < total:
        drafts = script[len(out) : len(out) + width]
        drafts = drafts[: limit.trim(drafts)]
        forced = forced_rows(limit, drafts)
        kept: list[int] = []
        for i in range(len(drafts) + 1):
            pick = forced[i] if forced[i] is not None else script[len(out) + i]
            kept.append(pick)
            if i < len(drafts) and drafts[i] != pick:
                break
        limit.commit(kept)
        out += kept
    return out[:total]


@pytest.mark.parametrize("width", range(6))
def test_reasoning_is_closed_at_the_limit(width: int) -> None:
    limit = ReasoningLimit(4, closer=CLOSER, ending=ENDING, inside=True)
    assert say(limit, [1] * 40, width, 12) == [1, 1, 1, 1, 7, 8, 7, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("width", range(6))
def test_reasoning_that_ends_by_itself_is_left_alone(width: int) -> None:
    limit = ReasoningLimit(5, closer=CLOSER, ending=ENDING, inside=True)
    script = [1, 2, 8, *[3] * 40]
    assert say(limit, script, width, 12) == script[:12]


@pytest.mark.parametrize("width", range(6))
def test_only_reasoning_that_was_opened_is_limited(width: int) -> None:
    script = [OPENER, *[1] * 40]
    limit = ReasoningLimit(3, closer=CLOSER, ending=ENDING, inside=False, opener=OPENER)
    assert say(limit, script, width, 9) == [OPENER, 1, 1, 1, 7, 8, 7, 1, 1]
    limit = ReasoningLimit(3, closer=CLOSER, ending=ENDING, inside=False, opener=OPENER)
    answer = [1, OPENER, *[1] * 40]
    assert say(limit, answer, width, 9) == answer[:9]

"""Costs are measured with varied tokens: constant ones would wake the same few experts and make width look free."""

from __future__ import annotations

import statistics
from typing import Any

import mlx.core as mx
import pytest
from fakes import ByteTokenizer, tiny_llama

from engine.calibration import measure_batches as module
from engine.calibration.measure import measure
from engine.decoding.draft_length.cost_model import distinct_experts
from engine.decoding.loop import Loop

VOCAB, EXPERTS = 512, 16
PROMPT = [(37 * i + i * i) % VOCAB for i in range(60)]


def woken(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], float]:
    """Mean number of experts by (sequences, width) of a verify, were a token's expert its id modulo 16."""
    target = tiny_llama(layers=1, vocab=VOCAB)
    seen: dict[tuple[int, int], list[int]] = {}
    body = target.body

    def spy(ids: mx.array, *args: Any, **kwargs: Any) -> Any:
        rows: Any = ids.tolist()
        seen.setdefault((len(rows), len(rows[0])), []).append(len({i % EXPERTS for row in rows for i in row}))
        return body(ids, *args, **kwargs)

    monkeypatch.setattr(target, "body", spy)
    measure(Loop(target), ByteTokenizer(), [], PROMPT, budget_s=0.5, most_rows=4)  # type: ignore[arg-type]
    return {key: statistics.fmean(counts) for key, counts in seen.items() if key[1] < len(PROMPT) // 4}


def check(found: dict[tuple[int, int], float]) -> None:
    """As many experts as independent routing wakes, at every width, for one sequence and for several."""
    widths = [w for rows, w in found if rows == 1 and w > 1]
    assert max(widths) >= 8
    assert any(rows == 4 for rows, _ in found)
    for (rows, width), experts in found.items():
        assert experts > 0.75 * distinct_experts(1, EXPERTS, rows * width), (rows, width)


def test_drafted_rows_wake_as_many_experts_as_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    check(woken(monkeypatch))


def test_constant_tokens_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above is one that can fail."""
    monkeypatch.setattr(module, "varied_ids", lambda prompt, vocab, count: [7] * count)
    with pytest.raises(AssertionError):
        check(woken(monkeypatch))

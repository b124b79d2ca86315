"""The probe finds the right reading of golden drafters that were labelled wrongly, and leaves right ones alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes import ByteTokenizer

from engine.diagnostics.drafter_check import ProbeReport, Reading, probe
from engine.drafters.checkpoint import Checkpoint, read_checkpoint
from engine.drafters.checkpoint.config import DrafterConfig
from engine.errors import DrafterRefused
from tests.engine.drafters.golden import Golden, golden_target

Relabel = Callable[[DrafterConfig], DrafterConfig]


def relabelled(name: str, change: Relabel) -> tuple[Checkpoint, Golden]:
    golden = Golden(name)
    checkpoint = read_checkpoint(golden.folder)
    return checkpoint._replace(config=change(checkpoint.config)), golden


def run(name: str, change: Relabel, tokens: int = 40, prompts: int = 2) -> ProbeReport:
    checkpoint, golden = relabelled(name, change)
    target = golden_target(golden.target)
    return probe(target, checkpoint, ByteTokenizer(), golden.json["prompts"][:prompts], tokens=tokens)  # type: ignore[arg-type]


def shifted(by: int) -> Relabel:
    return lambda c: replace(c, taps=tuple(t + by for t in c.taps))


MISLABELLED: list[Any] = [
    ("dspark-qwen3", lambda c: replace(c, logits_start=1), {"start": 0}),
    ("dflash-zlab-swa", lambda c: replace(c, logits_start=0), {"start": 1}),
    ("dspark-qwen3", shifted(1), {"shift": -1}),
    pytest.param("dspark-speculators", shifted(1), {"shift": -1}, marks=pytest.mark.slow),
    ("dspark-qwen3", lambda c: replace(c, rope=replace(c.rope, interleaved=True)), {"interleaved": False}),
]


@pytest.mark.parametrize(("name", "change", "expected"), MISLABELLED)
def test_finds_the_right_reading(name: str, change: Relabel, expected: dict[str, object]) -> None:
    report = run(name, change, tokens=56, prompts=3) if "shift" in expected else run(name, change)
    assert not report.right, report.verdict
    for axis, value in expected.items():
        assert getattr(report.best.reading, axis) == value
    assert "does better" in report.verdict


@pytest.mark.parametrize("name", ["dspark-qwen3", "dflash-zlab"])
def test_a_right_file_is_left_alone(name: str) -> None:
    report = run(name, lambda c: c)
    assert report.right, report.verdict
    assert report.own.reading == Reading(report.own.reading.start, 0, False, None)
    axes = {(r.start, r.shift, r.interleaved, r.causal) for r in (s.reading for s in report.scores)}
    assert len(axes) >= 6


def test_a_file_that_does_not_fit_is_refused() -> None:
    checkpoint, golden = relabelled("dspark-qwen3", lambda c: replace(c, taps=(1, 3, 9)))
    with pytest.raises(DrafterRefused):
        probe(golden_target(golden.target), checkpoint, ByteTokenizer(), [[1, 2, 3]])  # type: ignore[arg-type]

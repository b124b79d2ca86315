"""A learned drafter that is asked and says nothing is reported as a fault (O27), and only that one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest
from fakes import ScriptedDrafter

from engine.decoding.drafter_watch import PATIENCE, DrafterWatch
from engine.drafters.load import load_drafter
from engine.engine import Engine
from engine.load import open_engine
from engine.types import Request

GOLDEN = Path(__file__).parents[2] / "golden"
TARGET = GOLDEN / "targets" / "tiny-qwen3"
PROMPT = json.loads((TARGET / "golden" / "expected.json").read_text())["prompts"][0]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with open_engine(TARGET) as made:
        yield made


def detail(engine: Engine, name: str) -> str:
    return next(d.detail for d in engine.drafters if d.name == name)


def ask(engine: Engine, name: str, tokens: int, cap: int | None = None) -> None:
    list(engine.submit(Request(PROMPT, max_tokens=tokens, drafter=name, cap=cap, stop_ids=frozenset())))


def test_a_drafter_that_never_proposes_is_reported(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Beside its name and in the log, over requests, once; and taken back when it speaks after all."""
    words: list[int] = []
    engine.add_drafter(ScriptedDrafter(lambda ids, k: words[:k], name="mute", taps=(0,)))
    caplog.set_level(logging.WARNING, logger="dspark.drafters")
    ask(engine, "mute", PATIENCE // 2)
    assert detail(engine, "mute") == ""
    ask(engine, "mute", PATIENCE)
    assert f"proposed nothing {PATIENCE} times in a row" in detail(engine, "mute")
    assert detail(engine, "lookup+mute") == detail(engine, "mute")
    assert detail(engine, "lookup") == detail(engine, "none") == ""
    ask(engine, "mute", PATIENCE)
    assert len([r for r in caplog.records if "mute" in r.message]) == 1
    words.append(7)
    ask(engine, "mute", 4)
    assert detail(engine, "mute") == ""


def test_one_that_was_never_asked_is_not(engine: Engine) -> None:
    """Parked, pinned to 0, or not the one in charge."""
    engine.add_drafter(ScriptedDrafter(lambda ids, k: [], name="mute", taps=(0,)))
    for name, cap in (("mute", 0), ("lookup", None), ("none", None)):
        ask(engine, name, 2 * PATIENCE, cap)
    assert detail(engine, "mute") == ""


def test_lookup_may_be_silent(engine: Engine) -> None:
    ask(engine, "lookup", 2 * PATIENCE)
    assert all(not d.detail for d in engine.drafters)


def test_a_confidence_head_that_doubts_everything(engine: Engine) -> None:
    """A head in a number format that was misread may look like this: it loads, and is pure overhead."""
    drafter = engine.run_exclusive(
        lambda: load_drafter(GOLDEN / "drafters" / "dspark-qwen3", engine.target, threshold=0.999999)
    )
    drafter.confidence = lambda hidden, embeds: mx.zeros((hidden.shape[0],))  # type: ignore[assignment,union-attr]
    engine.add_drafter(drafter)
    ask(engine, "dspark", PATIENCE + 2)
    assert "proposed nothing" in detail(engine, "dspark")


def test_a_drafter_that_sometimes_doubts_is_fine() -> None:
    told: list[tuple[str, ...]] = []
    watch = DrafterWatch(lambda *what: told.append(what))
    for i in range(10 * PATIENCE):
        watch.heard("dspark", int(i % PATIENCE == 0))
    assert told == []

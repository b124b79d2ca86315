"""At load a drafter that is read otherwise than it was trained is warned about, once found out, and never switched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import Config
from engine.diagnostics import drafter_check_quick
from engine.drafters.checkpoint import Checkpoint, read_checkpoint
from engine.drafters.checkpoint.config import DrafterConfig
from engine.load import load
from tests.engine.drafters.golden import GOLDEN, Golden, golden_target

Relabel = Callable[[DrafterConfig], DrafterConfig]


def text(golden: Golden) -> list[int]:
    return golden.json["prompts"][0] + golden.json["plain_greedy"][0]


def relabelled(golden: Golden, change: Relabel) -> Checkpoint:
    checkpoint = read_checkpoint(golden.folder)
    return checkpoint._replace(config=change(checkpoint.config))


def other_row(c: DrafterConfig) -> DrafterConfig:
    return replace(c, logits_start=1 - c.logits_start)


def crossed_and_other_row(c: DrafterConfig) -> DrafterConfig:
    return other_row(replace(c, rope=replace(c.rope, interleaved=not c.rope.interleaved)))


MISLABELLED = [
    ("dspark-qwen3", other_row),
    ("dflash-zlab", other_row),
    ("dflash-deepspec", other_row),
    ("dflash-zlab", crossed_and_other_row),
]


@pytest.mark.parametrize(("name", "change"), MISLABELLED)
def test_a_wrong_row_or_rope_is_seen(name: str, change: Relabel) -> None:
    golden = Golden(name)
    right = read_checkpoint(golden.folder).config
    report = drafter_check_quick.glance(golden_target(golden.target), relabelled(golden, change), text(golden))
    assert not report.right
    found = report.best.reading
    assert (found.start, found.interleaved) == (right.logits_start, right.rope.interleaved)


@pytest.mark.parametrize("name", ["dspark-qwen3", "dspark-speculators", "dflash-zlab", "dflash2"])
def test_a_right_file_is_left_alone(name: str) -> None:
    golden = Golden(name)
    report = drafter_check_quick.glance(golden_target(golden.target), read_checkpoint(golden.folder), text(golden))
    assert report.right
    assert abs(len(report.own.counts) - drafter_check_quick.PLACES) <= 1
    if report.own.first >= drafter_check_quick.ENOUGH:
        assert len(report.scores) == 1, "looked further, though nothing could be clearly better"


def test_it_is_found_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a pair: another drafter is looked at again. A cache that cannot be written costs only the time."""
    golden = Golden("dspark-qwen3")
    target = golden_target(golden.target)
    looked: list[int] = []
    original = drafter_check_quick.glance

    def look(*args: Any) -> Any:
        looked.append(1)
        return original(*args)

    monkeypatch.setattr(drafter_check_quick, "glance", look)
    for fingerprint, count in (("a", 1), ("a", 1), ("b", 2)):
        assert drafter_check_quick.warning(target, golden.folder, fingerprint, text(golden), tmp_path / "probes") == ""
        assert len(looked) == count
    (tmp_path / "file").write_text("")
    for count in (3, 4):
        assert drafter_check_quick.warning(target, golden.folder, "a", text(golden), tmp_path / "file") == ""
        assert len(looked) == count


def test_the_warning_stands_beside_the_drafters_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told while loading, again from the cache at the next load; the file's own reading stays in force."""
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path))
    golden = Golden("dspark-qwen3")
    monkeypatch.setattr(
        "engine.diagnostics.drafter_check_quick.read_checkpoint", lambda _path: relabelled(golden, other_row)
    )
    tokens = text(golden)
    monkeypatch.setattr("engine.chat.tokenizer.Tokenizer.encode", lambda *_a, **_k: tokens)
    monkeypatch.setattr("engine.chat.template.ChatFormat.render", lambda *_a, **_k: [])
    for _ in range(2):
        told: list[str] = []
        with load(
            str(GOLDEN / "targets" / golden.target),
            drafter=str(golden.folder),
            cache_bytes=0,
            on_progress=lambda step, told=told: told.append(step.text),
        ) as engine:
            detail = {d.name: d.detail for d in engine.drafters}
            drafter: Any = engine.chain("dspark").learned
            assert drafter.config.logits_start == 0
        assert detail["dspark"].startswith("would draft better read as slot 0")
        assert detail["lookup+dspark"] == detail["dspark"]
        assert not detail["lookup"]
        assert any("would draft better read as slot 0" in line for line in told)
        monkeypatch.setattr("engine.diagnostics.drafter_check_quick.glance", lambda *_: pytest.fail("looked again"))


@pytest.mark.parametrize(("window", "rows"), [(4096, 4096), (16, 16), (0, None)])
def test_how_far_a_drafter_looks_back_is_a_setting(
    window: int, rows: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path))
    folder = str(GOLDEN / "drafters" / "dspark-qwen3")
    settings = Config(drafter_window=window)
    with load(str(GOLDEN / "targets" / "tiny-qwen3"), drafter=folder, cache_bytes=0, **settings.loading()) as engine:
        learned: Any = engine.chain("dspark").learned
        assert learned.context_rows == rows


def test_the_text_is_long_enough() -> None:
    """For any tokenizer that takes four characters for a token."""
    assert len(drafter_check_quick.ANSWER) / 4 > drafter_check_quick.PLACES * drafter_check_quick.EVERY
    assert drafter_check_quick.ROWS > drafter_check_quick.PLACES * drafter_check_quick.EVERY

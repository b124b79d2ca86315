"""A run that is killed in every stage, and goes on each time, ends where an uninterrupted one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.drafters.load import load_drafter
from engine.engine import Options
from engine.load import open_engine
from engine.training.data import conversations, features
from engine.training.loop import train
from engine.training.run import Run

sys.path.insert(0, str(Path(__file__).parent))
from sitting import MODEL, SETTINGS

pytestmark = pytest.mark.slow

POINTS = (
    ("conversations:4", "conversations.jsonl"),
    ("features:4", "features/done"),
    ("prepared.npz", "features/done"),
    ("state.safetensors", "prepared.npz"),
    ("model.safetensors", "training/best.safetensors"),
    ("config.json", "drafter/model.safetensors"),
)
"""Where the run is killed, one sitting after the other, and what the sitting must have left behind."""


class Quiet:
    def stage(self, name, detail): ...
    def progress(self, done, total): ...
    def report(self, report): ...


@pytest.fixture(scope="module")
def engine():
    with open_engine(MODEL, name="tiny", options=Options(drafter="none", max_batch=4)) as made:
        yield made


def _sit(out: Path, point: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("sitting.py")), str(out), point]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, (point, ended.stderr[-2000:])


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_in_every_stage_and_continued_equals_uninterrupted(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(conversations, "MAX_QUESTION", 12)
    monkeypatch.setattr(features, "GROUP", 4)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    for point, left in POINTS:
        _sit(broken, point)
        assert (broken / left).exists(), point
        assert not (broken / "drafter" / "config.json").exists()
    # What a kill left half-written must neither be read nor stand in the way.
    (broken / "training" / ".state.safetensors.999999999.part").write_bytes(b"torn")
    for folder in (broken, whole):
        made = Run(folder, SETTINGS, engine, Quiet()).all()
    assert engine.run_exclusive(lambda: load_drafter(made, engine.target)).name == "dspark"
    for name in (
        "conversations.jsonl", "features/taps.f16", "features/last.f16", "drafter/model.safetensors",
        "drafter/config.json",
    ):  # fmt: skip
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    assert train.read(broken / "training" / "state.safetensors")[1]["done"] == SETTINGS.steps
    assert not list(broken.rglob("*.part"))


def test_an_export_that_is_killed_leaves_the_earlier_drafter_whole(engine, tmp_path, monkeypatch):
    """The second half of a run, given a longer plan, dies while it writes over the files of the first."""
    from dataclasses import replace

    monkeypatch.setattr(conversations, "MAX_QUESTION", 12)
    folder = Run(tmp_path, replace(SETTINGS, steps=2), engine, Quiet()).all()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(before) == {"config.json", "model.safetensors", "README.md"}
    _sit(tmp_path, "model.safetensors")
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".part"} == before
    engine.run_exclusive(lambda: load_drafter(folder, engine.target))

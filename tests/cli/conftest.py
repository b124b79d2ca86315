"""A scripted engine behind the command line, and a home of its own for every test."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fake_answers import FakeEngine

from engine.load import LoadOptions


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    fake = FakeEngine()

    def load(model: str, options: LoadOptions, **kwargs: Any) -> FakeEngine:
        fake.loaded = {"model": model, **asdict(options), **kwargs}
        return fake

    monkeypatch.setattr("engine.load.load", load)
    return fake


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from engine import hub
    from engine.hub.catalog import catalog

    for name in (
        "DSPARK_MODEL",
        "DSPARK_SEED",
        "DSPARK_TEMPERATURE",
        "DSPARK_TRUST_REMOTE_CODE",
        "NO_COLOR",
        "HF_HUB_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    catalog.cache_clear()
    yield tmp_path
    hub.trust_remote_code(False)
    catalog.cache_clear()


class Terminal(io.StringIO):
    """Standard input of somebody who sits at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())

"""Every test of the app has its own folders, no colour settings from outside, and no animations."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.tui.album import FEW, REST, Album


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path / "home"))
    for name in ("NO_COLOR", "COLORTERM", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


@pytest.fixture(params=[pytest.param(FEW, id="few"), pytest.param(REST, id="rest", marks=pytest.mark.slow)])
def album(snapshot: SnapshotAssertion, request: pytest.FixtureRequest) -> Album:
    """Takes the pictures of a scene and compares them with the accepted ones."""
    return Album(snapshot, request, request.param)

"""A home of its own for every test: no model of this machine is found, none is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hub import trust_remote_code
from engine.hub.catalog import catalog


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in (
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "DSPARK_TRUST_REMOTE_CODE",
        "XDG_CACHE_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    catalog.cache_clear()
    trust_remote_code(False)
    yield tmp_path
    catalog.cache_clear()
    trust_remote_code(False)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a socket or starts a process fails the test."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)

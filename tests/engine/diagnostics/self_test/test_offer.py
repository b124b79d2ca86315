"""The self-test is offered once on each kind of backend, and without MLX."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from engine import paths
from engine.diagnostics.self_test import offer


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(paths.ENV_HOME, str(tmp_path))


def test_once_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "installed_kind", lambda: "cpu")
    assert "doctor --self-test" in offer.offer()
    assert offer.offer() == ""
    monkeypatch.setattr(offer, "installed_kind", lambda: "metal")
    assert "first start on Metal" in offer.offer()
    assert offer.offer() == ""


def test_not_after_it_ran() -> None:
    offer.taken()
    offer.taken()
    assert offer.offer() == ""


def test_a_file_that_cannot_be_read_or_written(monkeypatch: pytest.MonkeyPatch) -> None:
    file = offer._file()
    file.parent.mkdir(parents=True)
    file.write_text("[]")
    assert offer.offer() != ""
    file.unlink()
    file.mkdir()
    assert offer.offer() == "", "what cannot be remembered would be offered at every start"


@pytest.mark.parametrize(("platform", "installed", "kind"), [
    ("darwin", (), "metal"), ("linux", ("mlx-cuda-12",), "cuda"), ("linux", (), "cpu"),
])  # fmt: skip
def test_the_kind_by_what_is_installed(
    platform: str, installed: tuple[str, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(offer.sys, "platform", platform)
    monkeypatch.setattr(offer, "version", version)
    assert offer.installed_kind() == kind


def test_it_is_offered_without_mlx() -> None:
    code = "import sys, engine.diagnostics.self_test.offer as o; o.offer(); sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

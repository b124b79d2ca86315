"""Downloads run in a child process against a hub on loopback: progress, cancel, and a sentence for every failure."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path

import checkpoints
import pytest
from fake_hub import FakeHub, serving

from engine import hub
from engine.errors import Cancelled, FetchError, Gated, NoSpace, Offline, UnknownModel

REPO = "someone/tiny"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    with serving() as fake:
        fake.files[REPO] = {
            "config.json": b'{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}',
            "model.safetensors": checkpoints.safetensors(200_000),
            "modeling_evil.py": b"raise SystemExit",
            "pytorch_model.bin": b"x" * 1000,
        }
        monkeypatch.setenv("HF_ENDPOINT", fake.address)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield fake


def test_a_repository_is_fetched_with_progress_and_then_needs_no_network(
    server: FakeHub, monkeypatch: pytest.MonkeyPatch
):
    steps: list[hub.Progress] = []
    found = hub.ensure(REPO, on_progress=steps.append)
    assert found.installed and found.path is not None
    assert {p.name for p in found.path.iterdir()} == {"config.json", "model.safetensors"}, "no code, no second format"
    downloads = [s for s in steps if s.stage == "download"]
    total = sum(len(server.files[REPO][n]) for n in ("config.json", "model.safetensors"))
    assert downloads[0].total == downloads[-1].done == total
    assert [s.done for s in downloads] == sorted(s.done for s in downloads)
    server.requests.clear()
    monkeypatch.setattr("subprocess.Popen", lambda *_a, **_k: pytest.fail("fetched again"))
    assert hub.ensure(REPO).path == found.path
    assert not server.requests


def test_an_interrupted_download_is_completed(server: FakeHub):
    folder = hub.ensure(REPO).path
    assert folder is not None
    (folder / "model.safetensors").resolve().unlink()
    assert not hub.find(REPO).installed
    assert hub.ensure(REPO).installed


def test_cancel_ends_the_child_and_keeps_no_half_done_file(server: FakeHub, home: Path):
    server.seconds_a_block = 0.05
    seen: list[hub.Progress] = []
    with pytest.raises(Cancelled, match="No file was finished") as error:
        hub.ensure(REPO, on_progress=seen.append, stop=lambda: any(s.stage == "download" for s in seen))
    assert error.value.exit_code == 130
    assert not list((home / "hf").rglob("*.incomplete"))
    assert not hub.find(REPO).installed


def test_cancel_says_what_is_kept(server: FakeHub, home: Path):
    server.files[REPO]["tokenizer.json"] = b"{}"
    server.seconds_a_block = 0.2
    seen: list[hub.Progress] = []

    def small_ones_are_there() -> bool:
        return len([p for p in (home / "hf").rglob("snapshots/*/*") if p.suffix == ".json" and p.exists()]) == 2

    with pytest.raises(Cancelled, match="The 2 of 3 finished files stay on disk"):
        hub.ensure(REPO, on_progress=seen.append, stop=small_ones_are_there)
    assert {p.name for p in (home / "hf").rglob("snapshots/*/*")} == {"config.json", "tokenizer.json"}


def test_a_plan_gives_sizes_and_the_config_and_leaves_nothing(server: FakeHub, home: Path):
    plan = hub.plan_repo(REPO)
    files = server.files[REPO]
    assert plan.config["model_type"] == "qwen3"
    assert plan.weights == len(files["model.safetensors"])
    assert plan.bytes == plan.weights + len(files["config.json"]), "no code, no second format"
    assert not [p for p in (home / "hf").rglob("*") if p.suffix in (".json", ".safetensors")]
    assert hub.find(REPO).place == "none"
    assert not any("model.safetensors" in r and r.startswith("GET") for r in server.requests)
    hub.ensure(REPO)
    assert hub.plan_repo(REPO).bytes == 0


def test_a_plan_without_network_or_repository_is_a_sentence(server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UnknownModel, match="no someone/nothing"):
        hub.plan_repo("someone/nothing")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Offline, match="Connect and try again"):
        hub.plan_repo(REPO)


def test_too_little_space_is_said_before_anything_is_fetched(server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage(10**9, 10**9, 1000))
    with pytest.raises(NoSpace, match="HF_HOME"):
        hub.ensure(REPO)
    assert not any("model.safetensors" in r and r.startswith("GET") for r in server.requests)


def test_a_gated_repository_says_how_to_get_in(server: FakeHub):
    server.gated.add("someone/closed")
    with pytest.raises(Gated, match="hf auth login"):
        hub.ensure("someone/closed")


def test_a_repository_that_does_not_exist(server: FakeHub):
    with pytest.raises(UnknownModel, match="no someone/nothing"):
        hub.ensure("someone/nothing")


def test_no_network_is_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Offline, match="Connect and try again"):
        hub.ensure(REPO)


def test_offline_by_choice_starts_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("subprocess.Popen", lambda *_a, **_k: pytest.fail("started"))
    with pytest.raises(Offline, match="HF_HUB_OFFLINE"):
        hub.ensure(REPO)


def test_a_child_that_dies_is_a_sentence(server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONHOME", os.devnull)
    with pytest.raises(FetchError, match="ended without a word"):
        hub.ensure(REPO)


@pytest.mark.parametrize("reference", ["gguf:someone/heads/small/d.gguf", "someone/heads/small/d.gguf"])
def test_one_gguf_of_a_repository_is_fetched_alone(
    server: FakeHub, reference: str, home: Path, monkeypatch: pytest.MonkeyPatch
):
    server.files["someone/heads"] = {
        "small/d.gguf": b"GGUF small",
        "large/d.gguf": b"GGUF large",
        "config.json": b"{}",
        "model.safetensors": checkpoints.safetensors(100),
    }
    steps: list[hub.Progress] = []
    assert hub.drafter_path(reference) is None
    path = hub.ensure_drafter(reference, on_progress=steps.append)
    assert path.read_bytes() == b"GGUF small"
    assert max(s.total for s in steps) == len(b"GGUF small")
    assert not any("large" in r or "safetensors" in r for r in server.requests)
    monkeypatch.setattr("subprocess.Popen", lambda *_a, **_k: pytest.fail("fetched again"))
    assert hub.ensure_drafter(reference) == hub.drafter_path(reference) == path
    copy = home / "extra" / "someone" / "heads" / "large" / "d.gguf"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"GGUF")
    assert hub.drafter_path(reference.replace("small", "large"), [home / "extra"]) == copy


def test_a_gguf_that_the_repository_does_not_have(server: FakeHub):
    server.files["someone/heads"] = {"d.gguf": b"GGUF"}
    with pytest.raises(UnknownModel, match=r"someone/heads has no file other\.gguf"):
        hub.ensure_drafter("gguf:someone/heads/other.gguf")
    assert hub.drafter_path("someone/heads/../../etc/d.gguf") is None


def test_a_mask_row_beside_a_drafters_weights_is_fetched_and_nothing_else_in_that_format(server: FakeHub):
    server.files[REPO] |= {"mask_embedding.pt": b"PK", "optimizer.pt": b"x", "training_state.pt": b"x"}
    folder = hub.ensure_drafter(REPO)
    assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors", "mask_embedding.pt"}

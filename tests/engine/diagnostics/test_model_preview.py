"""What a picker can say of a model before it is loaded, and before anything of it was fetched."""

from __future__ import annotations

import json
from pathlib import Path

import checkpoints
import pytest
from fake_hub import FakeHub, serving

from engine import backend, paths
from engine.diagnostics.model_preview import choices, outlook
from engine.hub.catalog import catalog
from tests.tools.make_tiny_models import make
from tests.tools.tiny_configs import TEXT

REPO = "someone/tiny"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    catalog.cache_clear()
    yield
    catalog.cache_clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    with serving() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.address)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        fake.files[REPO] = {
            "config.json": json.dumps(TEXT["qwen3"]).encode(),
            "model.safetensors": checkpoints.safetensors(50_000),
        }
        yield fake


def card(text: str) -> None:
    folder = paths.config() / "cards"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.toml").write_text(text)
    catalog.cache_clear()


def test_what_is_here_comes_first_and_what_is_no_model_says_so(tmp_path: Path):
    checkpoints.in_hub_cache(tmp_path / "hf" / "hub", "some/model")
    checkpoints.in_hub_cache(tmp_path / "hf" / "hub", "some/draft-dspark", architectures=["DSparkModel"])
    found = {choice.name: choice for choice in choices()}
    assert found["some/model"].installed and found["some/model"].place == "hub"
    assert "goes with its model" in found["some/draft-dspark"].trouble
    assert not found["qwen3-4b"].installed
    assert found["qwen3-4b"].drafters == ("dspark", "dflash", "lookup")
    names = list(found)
    assert names.index("some/model") < names.index("qwen3-4b")


def test_an_interrupted_download_is_no_installed_model(tmp_path: Path):
    folder = checkpoints.in_hub_cache(tmp_path / "hf" / "hub", "some/model")
    (folder / "model.safetensors").unlink()
    checkpoints.index(folder, "a.safetensors", "b.safetensors")
    found = next(choice for choice in choices() if choice.name == "some/model")
    assert (found.installed, found.missing) == (False, 2)


def test_memory_and_drafters_are_known_without_loading(tmp_path: Path):
    folder = make("qwen3", tmp_path / "tiny")
    result = outlook(str(folder))
    assert result.installed and not result.trouble
    assert 0 < result.weights < result.memory < result.room
    assert [d.name for d in result.drafters] == ["learned drafter", "lookup"]
    assert "none is known" in result.drafters[0].reason


def test_a_model_that_does_not_fit_says_so_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = make("qwen3", tmp_path / "tiny")
    monkeypatch.setattr(backend, "memory_bytes", lambda: 100_000)
    result = outlook(str(folder))
    assert "choose a smaller" in result.trouble
    assert result.memory > result.room


def test_size_and_fit_are_known_before_a_byte_of_weights_is_fetched(server: FakeHub):
    quiet = outlook(REPO)
    assert quiet.fetch is None and not server.requests
    asked = outlook(REPO, ask=True)
    weights = len(server.files[REPO]["model.safetensors"])
    assert asked.fetch == weights + len(server.files[REPO]["config.json"])
    assert asked.memory > 0 and not asked.trouble
    assert not any("model.safetensors" in r and r.startswith("GET") for r in server.requests)
    server.gated.add("some/closed")
    assert "licence" in outlook("some/closed", ask=True).trouble


def test_the_best_drafter_counts_and_a_wrong_one_says_why(server: FakeHub, tmp_path: Path):
    server.files["someone/draft"] = {"config.json": b"{}", "model.safetensors": checkpoints.safetensors(10_000)}
    wrong = Path(__file__).parents[3] / "engine" / "drafters" / "bundled" / "smollm2-135m-dspark"
    card(
        f'id = "mine"\ntarget = "{REPO}"\nfamily = "qwen3"\nmode = "dflash"\n'
        f'[drafters]\ndflash = "someone/draft"\ndspark = "{wrong}"\n'
    )
    result = outlook("mine", ask=True)
    repos = (server.files[REPO], server.files["someone/draft"])
    assert result.fetch == sum(len(data) for files in repos for data in files.values())
    told = {d.name: d for d in result.drafters}
    assert "fetched with the model" in told["dflash"].reason
    assert not told["dspark"].ready
    assert "choose the drafter of this model" in told["dspark"].reason


def test_a_single_file_promises_no_number(tmp_path: Path):
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF" + bytes(1000))
    result = outlook(str(file))
    assert (result.installed, result.memory, result.size) == (True, 0, 1004)
    assert "when it is loaded" in result.note


def test_a_name_that_nobody_knows_is_a_sentence():
    assert "No model is called" in outlook("nonsense").trouble

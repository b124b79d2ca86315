"""One resolver answers where a model is, for loading, listing and fetching alike, and never asks the network."""

from __future__ import annotations

from pathlib import Path

import checkpoints
import pytest

from engine import hub
from engine.errors import UnknownModel

pytestmark = pytest.mark.usefixtures("no_network")


def test_an_empty_name_means_the_embedded_model():
    found = hub.find("")
    assert (found.name, found.place, found.installed) == ("smollm2-135m", "embedded", False)


def test_a_path_wins_over_everything(home: Path):
    folder = checkpoints.write(home / "qwen3-4b")
    found = hub.find(str(folder))
    assert found.place == "path" and found.installed and found.path == folder
    assert found.card is not None and found.card.id == "qwen3-4b"


def test_a_card_name_resolves_to_its_repository():
    found = hub.find("qwen3")
    assert (found.name, found.repo, found.installed) == ("qwen3-4b", "mlx-community/Qwen3-4B-8bit", False)


def test_another_quantisation_keeps_the_card_and_its_own_repository():
    found = hub.find("mlx-community/Qwen3-4B-4bit")
    assert found.repo == "mlx-community/Qwen3-4B-4bit"
    assert found.card is not None and found.card.id == "qwen3-4b"


@pytest.mark.parametrize(
    "sibling", ["someone/Qwen3-4B-Instruct-2507", "someone/Qwen3-4B-Base", "someone/Qwen3-4B-abliterated"]
)
def test_siblings_of_a_known_model_do_not_get_its_card(sibling: str):
    assert hub.find(sibling).card is None


def test_an_unknown_name_names_the_nearest():
    with pytest.raises(UnknownModel, match=r"Did you mean qwen3-14b") as error:
        hub.find("qwen3-14")
    assert "qwen3-14b" in error.value.nearest and error.value.exit_code == 2


def test_an_unknown_name_far_from_all_points_to_the_list():
    with pytest.raises(UnknownModel, match="dspark-chat models"):
        hub.find("zzzzzz")


def test_a_path_that_is_not_there_is_said_to_be_a_path():
    with pytest.raises(UnknownModel, match="There is no model at ./gone"):
        hub.find("./gone")


@pytest.mark.parametrize("place", ["hub", "lm-studio", "folder"])
def test_o50_a_model_in_any_known_place_is_installed_and_not_fetched(home: Path, place: str):
    repo = "mlx-community/Qwen3-4B-8bit"
    extra = home / "extra"
    match place:
        case "hub":
            folder = checkpoints.in_hub_cache(home / "hf" / "hub", repo)
        case "lm-studio":
            folder = checkpoints.write(home / "user" / ".lmstudio" / "models" / repo)
        case _:
            folder = checkpoints.write(extra / repo)
    for name in ("qwen3-4b", repo):
        found = hub.find(name, [extra])
        assert (found.place, found.path, found.installed) == (place, folder, True)
        assert hub.ensure(name, folders=[extra]).path == folder
    assert [f.name for f in hub.installed([extra])] == [repo]


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_o50_a_moved_cache_is_seen(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str):
    moved = home / "moved"
    cache = moved / "hub" if variable == "HF_HOME" else moved
    folder = checkpoints.in_hub_cache(cache, "someone/thing-4bit")
    monkeypatch.setenv(variable, str(moved))
    assert hub.find("someone/thing-4bit").path == folder


def test_a_complete_copy_wins_over_an_interrupted_one(home: Path):
    repo = "someone/thing"
    broken = checkpoints.in_hub_cache(home / "hf" / "hub", repo, weights=())
    checkpoints.index(broken, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    whole = checkpoints.write(home / "user" / ".lmstudio" / "models" / repo)
    assert hub.find(repo).path == whole


def test_a_folder_name_alone_finds_it_in_the_known_places(home: Path):
    folder = checkpoints.write(home / "extra" / "my-finetune")
    assert hub.find("My-Finetune", [home / "extra"]).path == folder


def test_drafters_are_told_from_models(home: Path):
    checkpoints.in_hub_cache(home / "hf" / "hub", "deepseek-ai/dspark_qwen3_4b_block7")
    checkpoints.in_hub_cache(home / "hf" / "hub", "someone/chat")
    kinds = {found.name: found.kind for found in hub.installed()}
    assert kinds == {"deepseek-ai/dspark_qwen3_4b_block7": "drafter", "someone/chat": "model"}


def test_a_gguf_file_is_a_model(home: Path):
    file = home / "some.gguf"
    file.write_bytes(b"GGUF")
    assert hub.find(str(file)).installed


def test_a_drafter_reference_may_be_a_path_or_a_repository(home: Path):
    folder = checkpoints.in_hub_cache(home / "hf" / "hub", "someone/head")
    assert hub.drafter_path("someone/head") == folder
    assert hub.drafter_path(str(folder)) == folder
    assert hub.drafter_path("someone/else") is None
    assert hub.drafter_path("bundled:nothing") is None

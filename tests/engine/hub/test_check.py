"""Folders that must not be loaded are refused with a sentence before anything of them is read."""

from __future__ import annotations

import json
from pathlib import Path

import checkpoints
import pytest

from engine import hub
from engine.errors import RemoteCodeRefused, WeightsDamaged, WeightsMissing


def test_a_whole_folder_passes(home: Path):
    hub.check_folder(checkpoints.write(home / "m"))


def test_a_folder_that_is_not_a_model(home: Path):
    (home / "holiday").mkdir()
    (home / "holiday" / "beach.jpg").write_bytes(b"")
    with pytest.raises(WeightsMissing, match=r"no config.json \(it holds beach.jpg\)"):
        hub.check_folder(home / "holiday")


def test_a_folder_without_weights(home: Path):
    with pytest.raises(WeightsMissing, match=r"lacks model.safetensors"):
        hub.check_folder(checkpoints.write(home / "m", weights=()))


def test_o49_missing_shards_are_named_with_the_command_that_resumes(home: Path):
    folder = checkpoints.in_hub_cache(home / "hf" / "hub", "someone/big", weights=("model-1.safetensors",))
    checkpoints.index(folder, "model-1.safetensors", "model-2.safetensors")
    found = hub.find("someone/big")
    assert not found.installed and found.missing == ("model-2.safetensors",)
    with pytest.raises(
        WeightsMissing, match=r"lacks model-2.safetensors. To complete it: dspark-chat models fetch someone/big"
    ):
        hub.ensure("someone/big", fetch=False)


def test_o49_a_link_to_a_blob_that_was_never_finished_counts_as_missing(home: Path):
    folder = checkpoints.write(home / "m", weights=())
    (folder / "model.safetensors").symlink_to(home / "blobs" / "gone")
    with pytest.raises(WeightsMissing, match="lacks model.safetensors"):
        hub.check_folder(folder)


@pytest.mark.parametrize("keep", [0, 4, 8, 40, -1])
def test_a_truncated_file_is_damaged_wherever_it_was_cut(home: Path, keep: int):
    folder = checkpoints.write(home / "m")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(WeightsDamaged, match="damaged or was cut short"):
        hub.check_folder(folder)


def test_a_web_page_in_place_of_weights_is_damaged(home: Path):
    folder = checkpoints.write(home / "m")
    (folder / "model.safetensors").write_text("<html>404 not found</html>" * 10)
    with pytest.raises(WeightsDamaged):
        hub.check_folder(folder)


@pytest.mark.parametrize("text", ["{", "[1, 2]", '{"weight_map": 3}'])
def test_a_broken_index_is_a_sentence(home: Path, text: str):
    folder = checkpoints.write(home / "m")
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(WeightsDamaged, match=r"index.json"):
        hub.check_folder(folder)
    assert not hub.find(str(folder)).installed


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "processor_config.json"])
@pytest.mark.parametrize("key", ["auto_map", "model_file"])
def test_o66_a_checkpoint_that_wants_to_run_code_is_refused_and_runs_nothing(home: Path, file: str, key: str):
    folder = checkpoints.write(home / "m")
    marker = home / "marker"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()")
    old = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    value = {"AutoConfig": "evil.Config", "AutoTokenizer": ["evil.T", None]} if key == "auto_map" else "evil.py"
    (folder / file).write_text(json.dumps({**old, key: value}))
    with pytest.raises(RemoteCodeRefused, match=f"{key} in {file}.*--trust-remote-code"):
        hub.ensure(str(folder))
    # A drafter is read and never imported, so what its config names cannot run; published ones often name something.
    assert hub.ensure_drafter(str(folder)) == folder
    assert not marker.exists()
    hub.trust_remote_code()
    hub.check_folder(folder)


def test_o66_loading_refuses_code_too(home: Path):
    from engine.targets.load import load_target

    folder = checkpoints.write(home / "m", auto_map={"AutoModelForCausalLM": "evil.Model"})
    with pytest.raises(RemoteCodeRefused):
        load_target(folder)

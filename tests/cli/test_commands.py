"""The commands that look at the machine, and every kind of bad input with its sentence and exit code."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path

import checkpoints
import pytest

from cli.main import main


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_paths_follow_dspark_home(home: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["paths", "--json"]) == 0
    places = json.loads(out(capsys))
    assert places["settings"] == str(home / "home" / "config" / "config.toml")
    assert places["hub cache"] == str(home / "hf" / "hub")
    assert main(["paths"]) == 0
    assert "not there yet" in out(capsys)


def test_models_lists_what_is_here_and_what_is_known(home: Path, capsys: pytest.CaptureFixture[str]):
    checkpoints.in_hub_cache(home / "hf" / "hub", "someone/evil\x1b[31m-model")
    checkpoints.in_hub_cache(home / "hf" / "hub", "someone/half", weights=())
    assert main(["models"]) == 0
    text = out(capsys)
    assert "\x1b" not in text
    assert "someone/half" in text and "incomplete" in text
    assert "qwen3-4b" in text
    assert main(["models", "--json"]) == 0
    assert {m["name"] for m in json.loads(out(capsys))["installed"]} >= {"someone/half"}


def test_models_check_says_which_are_bad(home: Path, capsys: pytest.CaptureFixture[str]):
    checkpoints.in_hub_cache(home / "hf" / "hub", "someone/whole")
    assert main(["models", "check"]) == 0
    broken = checkpoints.in_hub_cache(home / "hf" / "hub", "someone/cut")
    (broken / "model.safetensors").write_bytes(b"short")
    assert main(["models", "check"]) == 1
    assert "someone/whole: complete" in (text := out(capsys))
    assert "cut short" in text


def test_doctor_reports_and_names_what_is_wrong(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    cards = home / "home" / "config" / "cards"
    cards.mkdir(parents=True)
    (cards / "bad.toml").write_text("id = 3")
    code = main(["doctor", "--json", "--seed", "5"])
    report = json.loads(out(capsys))
    facts = {fact["name"]: fact for fact in report["facts"]}
    assert code == 1 and not report["ok"]
    assert facts["card"]["advice"]
    assert "GFLOP/s" in facts["matrix product"]["value"]
    assert report["settings"]["values"]["seed"] == 5
    assert report["settings"]["sources"] == {"seed": "--seed"}


def test_o65_doctor_names_the_package_that_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    from engine.diagnostics import doctor

    def refuse(name: str) -> None:
        if name == "transformers":
            raise ImportError("cannot import name 'x'")

    monkeypatch.setattr(doctor.importlib, "import_module", refuse)
    bad = [fact for fact in doctor._packages() if not fact.ok]
    assert [fact.name for fact in bad] == ["transformers"]
    assert "cannot import name" in bad[0].value and "transformers" in bad[0].advice


def test_doctor_survives_a_part_that_cannot_be_examined(monkeypatch: pytest.MonkeyPatch):
    from engine.diagnostics import doctor

    def broken() -> list[doctor.Fact]:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "_engine", broken)
    facts = doctor.examine()
    assert any(not fact.ok and "no such thing" in fact.value for fact in facts)
    assert any(fact.group == "terminal" for fact in facts)


# Bad input, through the real loader ----------------------------------------------------------------------------------


def test_unknown_model(capsys: pytest.CaptureFixture[str]):
    assert main(["-m", "qwen3-4", "hi"]) == 2
    assert "Did you mean qwen3-4b" in capsys.readouterr().err


def test_folder_without_weights(home: Path, capsys: pytest.CaptureFixture[str]):
    folder = checkpoints.write(home / "m", weights=())
    assert main(["-m", str(folder), "hi"]) == 1
    assert "lacks model.safetensors" in capsys.readouterr().err


def test_truncated_safetensors(home: Path, capsys: pytest.CaptureFixture[str]):
    folder = checkpoints.write(home / "m")
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors()[:-8])
    assert main(["-m", str(folder), "hi"]) == 1
    assert "cut short" in capsys.readouterr().err


def test_o66_config_that_asks_for_code(home: Path, capsys: pytest.CaptureFixture[str]):
    folder = checkpoints.write(home / "m", auto_map={"AutoModel": "evil.Model"})
    (folder / "evil.py").write_text(f"open({str(home / 'marker')!r}, 'w')")
    assert main(["-m", str(folder), "hi"]) == 1
    assert "auto_map in config.json" in capsys.readouterr().err
    assert not (home / "marker").exists()


def test_no_disk_space(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage(10**9, 10**9, 1000))
    assert main(["hi"]) == 1
    assert "needs 220 MB" in capsys.readouterr().err


def test_no_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["-m", "qwen3-4b", "hi"]) == 1
    assert "not on this machine" in capsys.readouterr().err


def test_a_file_name_cannot_drive_the_terminal(home: Path, capsys: pytest.CaptureFixture[str]):
    folder = home / "m\x1b]0;owned\x07"
    folder.mkdir()
    assert main(["-m", str(folder), "hi"]) == 1
    err = capsys.readouterr().err
    assert "\x1b" not in err and "\x07" not in err

"""The measuring commands from end to end on a tiny model, and the simulator, which needs none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.main import main

MODEL = ["--model", str(Path(__file__).parents[1] / "golden" / "targets" / "tiny-qwen3"), "--drafter", "lookup", "-q"]


def said(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_simulate_ships_the_m4_pro(capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "--json"]) == 0
    pairs = json.loads(capsys.readouterr().out)
    assert len(pairs) == 8
    assert sum(p["cap"] == p["published_cap"] for p in pairs) >= 7
    assert main(["simulate", "--pair", "gemma-12b-8bit", "-a", "0.9,0.8,0.6"]) == 0
    assert "gemma-12b-8bit" in capsys.readouterr().out


def test_simulate_reads_a_machine_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    mine = tmp_path / "mine.toml"
    mine.write_text("[pair]\nverify = { 1 = 10, 4 = 11 }\ndrafter_block = 1\n")
    assert main(["simulate", str(mine), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cap"] == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["simulate", "nowhere"], "No machine file 'nowhere'"),
        (["simulate", "-a", "often"], "is not an acceptance"),
        (["simulate", "-a", "1.5"], "between 0 and 1"),
        (["simulate", "--pair", "x"], "No pair 'x'"),
        (["verify", "--caps", "0"], "is not a draft length"),
        (["bench", "--file", "/nowhere"], "is not a file of prompts"),
    ],
)
def test_bad_input_is_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_broken_machine_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for text in ("{", "[pair]\n", "[pair]\nverify = { one = 2 }\n", "[pair]\nverify = {}\n"):
        (tmp_path / "m.toml").write_text(text)
        assert main(["simulate", str(tmp_path / "m.toml")]) == 2
        assert "is not a machine file" in capsys.readouterr().err


def test_calibrate_then_race_bench_and_verify(capsys: pytest.CaptureFixture[str]):
    assert main(["calibrate", *MODEL, "--show"]) == 1
    capsys.readouterr()
    assert main(["calibrate", *MODEL, "--budget", "0.5", "--json"]) == 0
    first = said(capsys)["drafters"]["lookup"]
    assert first["measured"]
    assert not first["stale"]
    assert main(["calibrate", *MODEL, "--show", "--json"]) == 0
    assert said(capsys)["drafters"]["lookup"]["plain"] == pytest.approx(first["plain"], rel=1e-3)

    assert main(["doctor"]) in (0, 1)
    told = capsys.readouterr().out
    assert re.search(r"GB/s \(measured now(, while others computed.*)?\)", told)
    assert re.search(r"tiny-qwen3 .* MB a step · ceiling .* tok/s · plain", told)

    assert main(["race", *MODEL, "--arms", "none,lookup", "--tokens", "12", "--json", "Hello"]) == 0
    race = said(capsys)
    assert race["ok"]
    assert len(race["arms"]) == 2
    assert "not measured" not in race["arms"][1]["label"]

    assert main(["bench", *MODEL, "--trials", "1", "--tokens", "8", "--no-stop", "Hello"]) == 0
    table = capsys.readouterr().out
    assert "lookup(n 3-4, ≤32)" in table
    assert "identical in 1 of 1" in table

    assert main(["verify", *MODEL, "--tokens", "8", "--caps", "2,full", "Hello"]) == 0
    assert "lossless" in capsys.readouterr().out

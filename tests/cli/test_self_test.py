"""`doctor --self-test` from the command line, and the line that offers it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

import dspark_chat
from engine.diagnostics.self_test.findings import Finding
from engine.diagnostics.self_test.report import Report


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the self-test will find."""
    made: dict[str, Any] = {"deviation": 0.0}

    def self_test(version: str, on_progress: Any) -> Report:
        made["told"] = on_progress
        finding = Finding("rope", "positions", "float32", made["deviation"], 0.1, "5 rows")
        return Report({"version": version}, (finding,), ("float32",), 1.0)

    monkeypatch.setattr("engine.diagnostics.self_test.run.self_test", self_test)
    return made


def test_the_exit_code_and_the_text(outcome: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert dspark_chat.main(["doctor", "--self-test"]) == 0
    out, err = capsys.readouterr()
    assert dspark_chat.__version__ in out and "All 1 checks passed" in out
    assert err == "" and outcome["told"] is None, "progress belongs to a terminal"
    outcome["deviation"] = 1.0
    assert dspark_chat.main(["doctor", "--self-test"]) == 1
    assert "WRONG:" in capsys.readouterr().out


def test_as_one_object(outcome: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert dspark_chat.main(["doctor", "--self-test", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["ok"] and whole["findings"][0]["check"] == "rope"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """start(arguments) -> whether the app, started at a terminal, is given the offer to show."""

    def run(*arguments: str) -> bool:
        started: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: True)
            for front_end in ("tui.app.run", "tui.plain.chat.run"):
                patch.setattr(front_end, lambda options: started.append(options) or 0)
            assert dspark_chat.main(list(arguments)) == 0
        return any("--self-test" in note for options in started for note in options.config.notes)

    return run


def test_offered_at_the_first_start_only(start: Callable[..., bool]) -> None:
    assert start()
    assert not start()


def test_offered_on_a_line_of_its_own_in_plain_mode(
    start: Callable[..., bool], capsys: pytest.CaptureFixture[str]
) -> None:
    start("--plain")
    assert capsys.readouterr().err.count("--self-test") == 1
    start("--plain")
    assert "--self-test" not in capsys.readouterr().err


def test_not_offered_when_quiet_nor_after_it_ran(start: Callable[..., bool], outcome: dict[str, Any]) -> None:
    assert not start("-q")
    assert dspark_chat.main(["doctor", "--self-test"]) == 0
    assert not start()


def test_not_offered_with_an_answer(
    engine: Any, start: Callable[..., bool], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not start("hello")
    assert "--self-test" not in capsys.readouterr().err
    assert start(), "an answer by itself does not use the offer up"

"""Shell completion: each script is accepted by its shell, and completes what the parsers know."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.commands.completion import INSTALL, commands
from cli.main import main
from cli.registry import COMMANDS


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = folder / f"completion.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def ask(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", INSTALL)
def test_the_shell_accepts_it(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(shell, tmp_path, capsys)
    for command in COMMANDS:
        assert command.name in path.read_text()
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not on this machine")
    ask([shell, "-n", str(path)])


@pytest.mark.parametrize(("words", "expected"), [
    (["--them"], {"--theme"}), (["--theme", "dspark-l"], {"dspark-light"}), (["mod"], {"models"}),
    (["models", "f"], {"fetch"}), (["models", "--js"], {"--json"}), (["--effort", "m"], {"minimal", "medium", "max"}),
    (["-m", "qwen3-4"], {"qwen3-4b"}), (["completion", "f"], {"fish"}), (["hello", "wor"], set()),
])  # fmt: skip
def test_bash(words: list[str], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("bash", tmp_path, capsys)
    line = " ".join(["dspark-chat", *words])
    ask_it = f'. {path}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _dspark_chat; printf "%s\\n" "${{COMPREPLY[@]}}"'
    assert set(ask(["bash", "--norc", "-c", ask_it]).split()) == expected


def test_fish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("fish"):
        pytest.skip("fish is not on this machine")
    path = script("fish", tmp_path, capsys)

    def complete(line: str) -> list[str]:
        out = ask(["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"])
        return [row.partition("\t")[0] for row in out.splitlines()]

    assert complete("dspark-chat --them") == ["--theme"]
    assert complete("dspark-chat --theme dspark-l") == ["dspark-light"]
    assert complete("dspark-chat completion fi") == ["fish"]
    assert "models" in complete("dspark-chat mo")


def test_every_option_is_offered() -> None:
    found = commands()
    assert set(found) == {"", *(c.name for c in COMMANDS)}
    flags = {flag for option in found[""] for flag in option.flags}
    assert {"--model", "-m", "--thinking", "--no-thinking", "--resume", "--plain"} <= flags

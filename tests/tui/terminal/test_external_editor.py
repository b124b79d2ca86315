"""Writing in the user's own editor: what it wrote, and what happens when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import UsageError
from tui.terminal import external_editor


def program(folder: Path, script: str) -> str:
    path = folder / "my external_editor.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"'{path}' --wait"


def test_what_was_written_comes_back_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", program(tmp_path, 'printf "two\\033[2J\\nlines\\n" >> "$2"'))
    assert external_editor.edit("first ") == "first two\nlines"


@pytest.mark.parametrize(("command", "says"), [
    ("/nowhere/editor", "cannot be started"), ("'unclosed", "cannot be started"), ("false", "ended with code 1"),
])  # fmt: skip
def test_an_editor_that_fails_is_a_sentence(command: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", command)
    with pytest.raises(UsageError, match=says):
        external_editor.edit("kept")

"""The desktop's clipboard tool is used where it reaches the user, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui import clipboard


@pytest.fixture
def wl_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that writes what it gets to a file."""
    program = tmp_path / "wl-copy"
    program.write_text(f"#!/bin/sh\n/bin/cat > {tmp_path}/got\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    for name in ("SSH_CONNECTION", "SSH_TTY", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "got"


def test_text_arrives_byte_for_byte(wl_copy: Path) -> None:
    command = clipboard.tool()
    assert command == ("wl-copy",)
    assert clipboard.copy("C:\\x\n漢字", command)
    assert wl_copy.read_bytes() == "C:\\x\n漢字".encode()


def test_not_over_ssh(wl_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4 5 6.7.8.9 22")
    assert clipboard.tool() is None


def test_a_missing_or_failing_tool_is_no_fault(tmp_path: Path) -> None:
    assert not clipboard.copy("x", (str(tmp_path / "nothing"),))
    assert not clipboard.copy("x", ("/bin/sh", "-c", "exit 3"))

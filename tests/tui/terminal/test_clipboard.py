"""The desktop's clipboard tool is used where it reaches the user, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import UsageError
from tui.terminal import clipboard


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


def stand_in(folder: Path, name: str, data: bytes, code: int = 0) -> None:
    """A tool that writes `data`."""
    (folder / f"{name}.data").write_bytes(data)
    program = folder / name
    program.write_text(f"#!/bin/sh\n/bin/cat {folder}/{name}.data\nexit {code}\n")
    program.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without tools, on a desktop of either kind."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


PICTURE = clipboard.PNG + b"the rest"


@pytest.mark.parametrize(("name", "data"), [
    ("pngpaste", PICTURE), ("wl-paste", PICTURE), ("xclip", PICTURE),
    ("osascript", b"\xc2\xabdata PNGf" + PICTURE.hex().upper().encode() + b"\xc2\xbb\n"),
])  # fmt: skip
def test_a_picture_is_read_by_each_tool_and_kept_by_its_content(name: str, data: bytes, bare: Path) -> None:
    stand_in(bare, name, data)
    path = clipboard.keep_picture(bare / "kept")
    assert path.read_bytes() == PICTURE
    assert clipboard.keep_picture(bare / "kept") == path


def test_a_picture_that_cannot_be_had_is_a_sentence(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="install wl-clipboard or xclip"):
        clipboard.picture()
    stand_in(bare, "wl-paste", b"", code=1)
    stand_in(bare, "xclip", b"some text")
    with pytest.raises(UsageError, match="There is no picture in the clipboard"):
        clipboard.picture()
    stand_in(bare, "wl-paste", PICTURE)
    with pytest.raises(UsageError, match="cannot be kept"):
        clipboard.keep_picture(bare / "xclip")
    monkeypatch.setenv("SSH_TTY", "/dev/pts/3")
    with pytest.raises(UsageError, match="Over ssh your own clipboard is out of reach"):
        clipboard.picture()


def test_text_is_read_too(bare: Path) -> None:
    assert clipboard.text() is None
    stand_in(bare, "wl-paste", "漢字\nzwei".encode())
    assert clipboard.text() == "漢字\nzwei"

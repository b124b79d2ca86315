"""Files are replaced whole or not at all, and what a killed process left is swept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from engine import paths


def test_a_file_is_replaced_whole_and_only_its_owner_reads_a_new_one(tmp_path: Path):
    file = tmp_path / "kept.json"
    paths.write_atomically(file, "one")
    assert file.read_text() == "one" and stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    paths.write_atomically(file, "two\r\n", durable=True)
    assert file.read_bytes() == b"two\r\n" and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["kept.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path):
    file = tmp_path / "kept.json"
    paths.write_atomically(file, "one")
    with pytest.raises(TypeError), paths.replacing(file) as part:
        part.write_text(b"half")  # type: ignore[arg-type]
    assert file.read_text() == "one" and os.listdir(tmp_path) == ["kept.json"]


def test_parts_of_dead_processes_go_and_those_of_the_living_stay(tmp_path: Path):
    file = tmp_path / "kept.json"
    dead, living = tmp_path / ".kept.json.999999999.part", tmp_path / f".kept.json.{os.getppid()}.part"
    for left in (dead, living):
        left.write_text("half")
    paths.write_atomically(file, "one")
    assert sorted(os.listdir(tmp_path)) == [living.name, "kept.json"]


def test_what_others_could_read_is_its_owner_s_alone(tmp_path: Path):
    for name, mode in (("new.db", None), ("old.db", 0o644)):
        file = tmp_path / name
        if mode is not None:
            file.write_text("kept")
            file.chmod(mode)
        paths.keep_private(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_text() == ("kept" if mode else "")


def test_chats_and_history_are_private(tmp_path: Path):
    from tui.conversation.input_history import History
    from tui.conversation.store import Store

    Store(tmp_path / "chats.db").close()
    History(tmp_path / "history.jsonl").add("a secret")
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}

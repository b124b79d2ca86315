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

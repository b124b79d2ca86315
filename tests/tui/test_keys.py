"""The key table is the one place: the document is made from it, and nothing clashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tui.keymap import keymap
from tui.keys import KEYS, READING, pretty, table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "keys.md"


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == table()


def test_ids_and_keys_are_unique() -> None:
    ids = [key.id for key in KEYS]
    keys = [k for key in KEYS for k in key.keys.split(",") if k]
    assert len(set(ids)) == len(ids)
    assert len(set(keys)) == len(keys)
    reading = [k for key in READING for k in key.keys.split(",")]
    assert len(set(reading)) == len(reading)


def test_keys_of_tmux_and_the_shell_are_left_alone() -> None:
    assert not {"ctrl+b", "ctrl+o", "ctrl+l"} & {k for key in KEYS for k in key.keys.split(",")}


def test_pretty() -> None:
    assert pretty("shift+tab") == "Shift+Tab"
    assert pretty("f4") == "F4"
    assert pretty("y,Y,up") == "y, Y, ↑"
    assert pretty("alt+up,alt+down") == "Alt+↑, Alt+↓"


def test_keys_are_mapped_by_id_and_may_change_places() -> None:
    assert keymap({"view": "f6", "panels": "F4, ctrl+x"}) == ({"view": "f6", "panels": "f4,ctrl+x"}, [])
    assert keymap({}) == ({}, [])


@pytest.mark.parametrize(("table", "says"), [
    ({"view": "f6"}, "view is left out: F6 belongs to panels"),
    ({"view": "ctrl+x", "panels": "ctrl+x"}, "panels is left out: Ctrl+X belongs to view"),
    ({"view": "f6", "panels": "enter"}, "panels is left out: Enter sends or breaks the line"),
    ({"nonsense": "f9"}, "there is no such id"), ({"send": "f9"}, "there is no such id"),
    ({"view": 5}, "a key is written like"), ({"view": ""}, "“” is no key"), ({"view": "x"}, "x writes text"),
    ({"view": "f99"}, "“f99” is no key"), ({"view": "ctrl+\x1b[2J"}, "is no key"),
    ({"a\x1b[2Jb": "f9"}, "[keys] ab is left"),
])  # fmt: skip
def test_conflicts_and_mistakes_are_told_and_left_out(table: dict[str, Any], says: str) -> None:
    keys, notes = keymap(table)
    assert any(says in note for note in notes), notes
    final = {key.id: keys.get(key.id, key.keys) for key in KEYS if key.keys}
    used = [k for value in final.values() for k in value.split(",")]
    assert len(set(used)) == len(used)
    assert all("\x1b" not in note for note in notes)

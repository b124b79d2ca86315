"""The key table is the one place: the document is made from it, and nothing clashes."""

from __future__ import annotations

from pathlib import Path

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
    assert not {"ctrl+b", "ctrl+o", "ctrl+l", "ctrl+z"} & {k for key in KEYS for k in key.keys.split(",")}


def test_pretty() -> None:
    assert pretty("shift+tab") == "Shift+Tab"
    assert pretty("f4") == "F4"
    assert pretty("y,Y,up") == "y, Y, ↑"
    assert pretty("alt+up,alt+down") == "Alt+↑, Alt+↓"

"""`dspark-chat import`: from files to the list of chats."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main
from engine import paths
from tui.conversation.store import Store


def test_chats_are_imported_and_can_be_resumed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = home / "old chat.md", home / "bad.json"
    good.write_text("# A title\n\n## User\nhello\n## Assistant\nhi\n")
    bad.write_text("{")
    assert main(["import", str(bad), str(good), str(home / "nothing")]) == 2
    out, err = capsys.readouterr()
    assert "“A title”, 1 turn: dspark-chat --resume " in out
    assert "bad.json is not valid JSON" in err
    assert "There is no file" in err
    store = Store(paths.data() / "chats.db")
    try:
        (row,) = store.list()
        assert row.id.startswith(out.strip().rpartition(" ")[2])
        assert row.name == "A title"
        assert [(t.user, t.answer.text) for t in store.load(row.id).turns] == [("hello", "hi")]
        assert store.search("hello")
    finally:
        store.close()

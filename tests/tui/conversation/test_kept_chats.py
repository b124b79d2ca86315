"""Chats of the version before are read: the file of chats as it was, and an export as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.types import Source
from tui.conversation import importer
from tui.conversation.chat import Chat, Status
from tui.conversation.store import Store

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "chats"
ID = "c0ffee" + "0" * 26


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Store]:
    db = sqlite3.connect(tmp_path / "chats.db")
    db.executescript((GOLDEN / "version_1.sql").read_text(encoding="utf-8"))
    db.close()
    store = Store(tmp_path / "chats.db")
    assert not store.note
    yield store
    store.close()


def test_stored_chats_are_read_with_all_that_was_known_of_them(stored: Store) -> None:
    chat = stored.load(ID, "0" * 31 + "3")
    assert (chat.title, chat.system, chat.created) == ("A kept chat", "Be “brief”.", 1_700_000_000.0)
    first, second, third = (turn.answer for turn in chat.turns)
    assert (first.text, first.status) == ("The answer is **forty-two** — 漢字 and more.", Status.DONE)
    assert (first.model, first.seed, first.drafter, len(first.prov)) == ("fake-135m", 7, "dflash", len(first.text))
    assert first.rounds[2].chain == "lookup,dflash"
    assert [span.end for span in first.spans] == [*range(4, 42, 4), 42]
    assert (first.usage.prompt, first.usage.completion) == (40, 9)
    assert first.prefilled is not None
    assert (first.prefilled.cached, first.prefilled.hit, first.prefilled.saved_ms) == (12, "turn", 900.0)
    assert first.asked is not None
    assert (first.asked.checksum, first.asked.sampling.temperature) == (123456789, 0.7)
    assert first.asked.sampling.logit_bias == {5: -1.5, 9: 2.0}
    assert (second.reply, second.tally.by_source[Source.LOOKUP] > 0) == ("The reply is 42.", True)
    assert (chat.turns[2].images, third.status) == (("a.png: 3 × 4, 12 tokens",), Status.LENGTH)
    failed = stored.load(ID).turns[-1].answer
    assert (failed.status, failed.error, failed.text) == (Status.FAILED, "out of memory", "Partial")
    assert len(stored.siblings(ID, chat.turns[2].id)) == 2
    assert [row.id for row in stored.search("forty-two")] == [ID]


def test_an_export_of_then_says_the_same_as_the_store(stored: Store) -> None:
    chat = importer.read(GOLDEN / "export_1.json")
    assert (chat.title, chat.system) == ("A kept chat", "Be “brief”.")
    kept: Chat = stored.load(ID, "0" * 31 + "3")
    for turn, other in zip(chat.turns, [*kept.turns, stored.load(ID).turns[-1]], strict=True):
        a, b = turn.answer, other.answer
        assert (turn.user, turn.images, a.text, bytes(a.prov)) == (other.user, other.images, b.text, bytes(b.prov))
        assert (a.status, a.error, a.spans, a.reply, a.thought_ranges) == (
            *(b.status, b.error, b.spans, b.reply, b.thought_ranges),
        )
        assert (a.tally, a.model, a.seed, a.drafter) == (b.tally, b.model, b.seed, b.drafter)

"""Chats survive: kill -9, two instances, damage, and versions to come."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tui.fakes import script
from tui.conversation.chat import Answer, Chat, Status, Turn
from tui.conversation.store import VERSION, Store, StoreRefused


def answered(text: str) -> Answer:
    answer = Answer(model="m", seed=7)
    for event in script(text):
        list(answer.take(event))
    answer.status = Status.DONE
    return answer


def saved(store: Store, *turns: tuple[str, str], title: str = "") -> Chat:
    chat = Chat(title=title)
    for user, text in turns:
        chat.turns.append(Turn(user, answered(text)))
        store.save(chat, chat.turns[-1])
    assert store.settle()
    return chat


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    store = Store(tmp_path / "chats.db")
    yield store
    store.close()


def test_a_chat_comes_back_as_it_was(store: Store) -> None:
    chat = saved(store, ("C:\\x [/b]", "An **answer** with 漢字 and 👩‍👩‍👧‍👦."), ("two", "more"))
    back = store.load(chat.id)
    assert [t.user for t in back.turns] == ["C:\\x [/b]", "two"]
    first, again = chat.turns[0].answer, back.turns[0].answer
    assert (again.text, bytes(again.prov), again.spans) == (first.text, bytes(first.prov), first.spans)
    assert (again.tally, again.status, again.seed, again.model) == (first.tally, Status.DONE, 7, "m")
    assert [r.tokens for r in again.rounds] == [r.tokens for r in first.rounds]


def test_saving_again_replaces(store: Store) -> None:
    chat = Chat(turns=[Turn("q")])
    answer = chat.turns[0].answer
    for event in script("some words that come one after the other"):
        list(answer.take(event))
        store.save(chat, chat.turns[0])
    assert store.settle()
    assert store.load(chat.id).turns[0].answer.text == answer.text
    assert store.list()[0].turns == 1


def test_an_answer_that_was_streaming_is_marked_lost(store: Store) -> None:
    chat = Chat(turns=[Turn("q", Answer(text="half", prov=bytearray(b"\2" * 4), status=Status.STREAMING))])
    store.save(chat, chat.turns[0])
    store.settle()
    answer = store.load(chat.id).turns[0].answer
    assert (answer.status, answer.text, bytes(answer.prov)) == (Status.LOST, "half", b"\2" * 4)


def test_kill_in_mid_answer_keeps_what_was_there(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})
from pathlib import Path
from tests.tui.fakes import script
from tui.conversation.chat import Chat, Turn
from tui.conversation.store import Store
store = Store(Path({str(tmp_path / "chats.db")!r}))
chat = Chat(id="victim", turns=[Turn("question")])
for event in script("word " * 2000):
    list(chat.turns[0].answer.take(event))
    store.save(chat, chat.turns[0])
    print(len(chat.turns[0].answer.text), flush=True)
    time.sleep(0.005)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen = [int(child.stdout.readline()) for _ in range(60)]
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    store = Store(tmp_path / "chats.db")
    assert not store.note
    answer = store.load("victim").turns[0].answer
    assert len(answer.text) >= seen[-1]
    assert answer.status is Status.LOST
    store.close()


def test_two_instances_share_the_file_without_loss(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    chats = []
    for i in range(20):
        for store in (one, two):
            chat = Chat(turns=[Turn(f"q{i}", answered("text"))])
            store.save(chat, chat.turns[0])
            chats.append(chat.id)
    assert one.settle()
    assert two.settle()
    assert not one.failed
    assert not two.failed
    assert {row.id for row in one.list()} == set(chats)
    one.close()
    two.close()


def test_a_damaged_file_is_set_aside_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(b"this is no database, but somebody's chats " * 50)
    store = Store(path)
    assert "damaged" in store.note
    (kept,) = tmp_path.glob("chats.damaged-*.db")
    assert kept.read_bytes().startswith(b"this is no database")
    saved(store, ("q", "a"))
    store.close()


def test_a_page_of_rubbish_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = Store(path)
    for i in range(30):
        saved(store, (f"q{i}", "text " * 200))
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:16384] = b"\xff" * 8192
    path.write_bytes(data)
    store = Store(path)
    assert "kept as" in store.note
    assert store.list() == []
    store.close()


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="newer version"):
        Store(path)
    assert path.read_bytes() == before


def test_list_search_rename_delete_and_restore(store: Store) -> None:
    a = saved(store, ("tell me about whales", "Whales are [/big] mammals."))
    b = saved(store, ("what is 2 + 2", "Four. 100% sure_thing"), title="sums")
    assert [row.id for row in store.list()] == [b.id, a.id]
    assert [row.id for row in store.search("mamm")] == [a.id]
    assert [row.id for row in store.search("sums")] == [b.id]
    for nasty in ('"', "%", "_", "[/", "a OR b", "NEAR(", "*", "-", "' --", "100%"):
        store.search(nasty)
    store.rename(a.id, "sea [bold]")
    store.delete(b.id)
    store.settle()
    assert [row.name for row in store.list()] == ["sea [bold]"]
    store.restore(b.id)
    store.settle()
    assert len(store.list()) == 2
    assert store.find(a.id[:6]) == a.id
    assert store.find("zzz") is None
    assert store.find() == b.id


def test_siblings_keep_every_answer(store: Store) -> None:
    chat = saved(store, ("q1", "a1"), ("q2", "old"))
    old = chat.turns.pop()
    new = Turn("q2", answered("new"))
    chat.turns.append(new)
    store.save(chat, new)
    store.settle()
    assert [t.answer.text for t in store.load(chat.id).turns] == ["a1", "new"]
    assert set(store.siblings(chat.id, new.id)) == {old.id, new.id}
    assert [t.answer.text for t in store.load(chat.id, old.id).turns] == ["a1", "old"]
    assert store.leaf(chat.id, chat.turns[0].id) in (old.id, new.id)


def test_ten_thousand_chats_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "chats.db")
    store.close()
    with sqlite3.connect(tmp_path / "chats.db") as db:
        db.executemany(
            "INSERT INTO chats (id, title, first, system, model, created, updated) VALUES (?, '', ?, '', '', 0, ?)",
            ((f"c{i}", f"question {i}", float(i)) for i in range(10_000)),
        )
    db.close()
    steps = 0
    connect = Store._connect

    def counted(store: Store) -> sqlite3.Connection:
        def note() -> None:
            nonlocal steps
            steps += 100

        db = connect(store)
        db.set_progress_handler(note, 100)
        return db

    monkeypatch.setattr(Store, "_connect", counted)
    store = Store(tmp_path / "chats.db")
    assert len(store.list()) == 200
    assert 0 < steps < 30 * 10_000, "of the database: it looks at each chat, and into none"
    store.close()


def test_n04_half_a_surrogate_pair_is_saved_and_the_store_goes_on(store: Store) -> None:
    chat = saved(store, ("ab\ud83d cd", "fine \udc00"), title="t\ud83d")
    found = store.load(chat.id)
    assert (found.turns[0].user, found.turns[0].answer.text, found.title) == ("ab\ufffd cd", "fine \ufffd", "t\ufffd")
    assert store.search("ab\ud83d")
    store.rename(chat.id, "\ud83d")
    assert not store.failed


def test_a_fault_in_a_write_is_said_and_the_next_write_is_done(store: Store) -> None:
    def fault(_: sqlite3.Connection) -> None:
        raise RuntimeError("odd")

    store._jobs.put(fault)
    assert store.settle()
    chat = saved(store, ("still", "here"))
    assert store.load(chat.id).turns[0].answer.text == "here"

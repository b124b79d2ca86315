"""Chats on disk: one SQLite file in WAL mode, written while answers stream, shared by any number of instances.

Writes go through one thread of this process, so that a slow disk or another instance's lock never stops the screen.
Turns form a tree (a turn has a parent; a chat has a head), so an edited or regenerated turn is a sibling and nothing is
lost. A damaged file is set aside and kept; one written by a newer version is left alone.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import paths
from engine.chat.foreign_text import whole
from engine.errors import DsparkError
from tui.conversation.answer_json import dump_answer, load_answer
from tui.conversation.chat import Chat, Turn

VERSION = 1
BUSY_S = 10.0
CHECKED_BYTES = 32 << 20
"""Files up to this size are checked page by page on opening; larger ones would keep the user waiting."""
_SCHEMA = """
CREATE TABLE chats (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, first TEXT NOT NULL, system TEXT NOT NULL, model TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, deleted REAL, head TEXT
);
CREATE INDEX chats_updated ON chats (deleted, updated DESC);
CREATE TABLE turns (
    id TEXT PRIMARY KEY, chat TEXT NOT NULL, parent TEXT, created REAL NOT NULL, user TEXT NOT NULL,
    images TEXT NOT NULL, text TEXT NOT NULL, prov TEXT NOT NULL, status TEXT NOT NULL, error TEXT NOT NULL,
    meta TEXT NOT NULL, rounds BLOB
);
CREATE INDEX turns_chat ON turns (chat, parent);
"""
_SEARCH = "CREATE VIRTUAL TABLE search USING fts5(turn UNINDEXED, chat UNINDEXED, user, text, tokenize='unicode61')"


class StoreRefused(DsparkError):
    """The file of chats cannot be used."""


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A chat in the list."""

    id: str
    name: str
    model: str
    updated: float
    turns: int
    found: str = ""
    """What a search matched in it."""


class Store:
    """Open with a path; close when done. Methods that write return at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        """A sentence for the user about what happened on opening."""
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.keep_private(path)
        try:
            self._read = self._open()
        except sqlite3.DatabaseError as error:
            self.note = self._set_aside(error)
            self._read = self._open()
        self._searches = bool(self._one("SELECT 1 FROM sqlite_master WHERE name = 'search'"))
        self._jobs: queue.SimpleQueue[Callable[[sqlite3.Connection], None] | None] = queue.SimpleQueue()
        self.failed = ""
        """Why the last write did not happen; empty when it did."""
        self._thread = threading.Thread(target=self._work, name="dspark-store", daemon=True)
        self._thread.start()

    # Opening ----------------------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    def _open(self) -> sqlite3.Connection:
        db = self._connect()
        try:
            db.execute("PRAGMA journal_mode = WAL")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                raise StoreRefused(
                    f"The chats in {self.path} were written by a newer version of this program, so this chat is not "
                    "saved. Update, or set DSPARK_HOME to another folder."
                )
            db.execute("BEGIN IMMEDIATE")  # two instances may be starting
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._create(db)
            db.execute("COMMIT")
            db.execute("SELECT id, title FROM chats LIMIT 1").fetchone()
            if self.path.stat().st_size < CHECKED_BYTES:
                damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
                if damage != "ok":
                    raise sqlite3.DatabaseError(damage)
        except BaseException:
            db.close()
            raise
        return db

    def _create(self, db: sqlite3.Connection) -> None:
        for statement in _SCHEMA.split(";"):
            if statement.strip():
                db.execute(statement)
        with suppress(sqlite3.OperationalError):  # an SQLite without full-text search: LIKE does it, slower
            db.execute(_SEARCH)
        db.execute(f"PRAGMA user_version = {VERSION}")

    def _set_aside(self, error: sqlite3.DatabaseError) -> str:
        if isinstance(error, sqlite3.OperationalError):
            raise StoreRefused(
                f"The chats in {self.path} cannot be opened: {error}. This chat is not saved."
            ) from error
        kept = self.path.with_name(f"{self.path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{self.path.suffix}")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.rename(kept.with_name(kept.name + suffix))
        return f"The file of chats was damaged ({error}). It is kept as {kept}, and a new one was begun."

    # Writing ----------------------------------------------------------------------------------------------------------

    def save(self, chat: Chat, turn: Turn) -> None:
        """Write one turn as it is now, and what the list shows of its chat."""
        data = dump_answer(turn.answer)
        at = chat.turns.index(turn)
        parent = chat.turns[at - 1].id if at else None
        now = time.time()
        head = (
            chat.id,
            chat.title,
            chat.turns[0].user[:200],
            chat.system,
            turn.answer.model,
            chat.created,
            now,
            turn.id,
        )
        row = (turn.id, chat.id, parent, turn.answer.started, turn.user, json.dumps(turn.images), *data.values())
        over = turn.answer.status.over

        def job(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO chats (id, title, first, system, model, created, updated, head) VALUES (?,?,?,?,?,?,?,?) "
                "ON CONFLICT (id) DO UPDATE SET first = excluded.first, system = excluded.system, "
                "model = excluded.model, updated = excluded.updated, head = excluded.head",
                _whole(head),
            )
            db.execute(
                "INSERT INTO turns (id, chat, parent, created, user, images, text, prov, status, error, meta, rounds) "
                "VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET text = excluded.text, "
                "prov = excluded.prov, status = excluded.status, error = excluded.error, meta = excluded.meta, "
                "rounds = excluded.rounds",
                _whole(row),
            )
            if over and self._searches:
                db.execute("DELETE FROM search WHERE turn = ?", (turn.id,))
                found = (turn.id, chat.id, turn.user, data["text"])
                db.execute("INSERT INTO search VALUES (?,?,?,?)", _whole(found))

        self._jobs.put(job)

    def rename(self, id: str, title: str) -> None:
        self._jobs.put(lambda db: db.execute("UPDATE chats SET title = ? WHERE id = ?", (whole(title), id)) and None)

    def delete(self, id: str) -> None:
        """Out of the list; `restore` brings it back."""
        self._jobs.put(lambda db: db.execute("UPDATE chats SET deleted = ? WHERE id = ?", (time.time(), id)) and None)

    def restore(self, id: str) -> None:
        self._jobs.put(lambda db: db.execute("UPDATE chats SET deleted = NULL WHERE id = ?", (id,)) and None)

    def settle(self, timeout: float = BUSY_S) -> bool:
        """Wait until everything asked for so far is written."""
        done = threading.Event()
        self._jobs.put(lambda _: done.set())
        return done.wait(timeout)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(BUSY_S)
        self._read.close()

    def _work(self) -> None:
        with closing(self._connect()) as db:
            while (job := self._jobs.get()) is not None:
                try:
                    db.execute("BEGIN IMMEDIATE")
                    job(db)
                    db.execute("COMMIT")
                    self.failed = ""
                # A full disk, a lock held too long: the app says it. A thread that died would lose chats in silence.
                except Exception as error:  # noqa: BLE001
                    self.failed = f"The chat is not saved: {error}."
                    if db.in_transaction:
                        db.execute("ROLLBACK")

    # Reading ----------------------------------------------------------------------------------------------------------

    def _all(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        return self._read.execute(sql, values).fetchall()

    def _one(self, sql: str, values: tuple[Any, ...] = ()) -> sqlite3.Row | None:
        return self._read.execute(sql, values).fetchone()

    def list(self, limit: int = 200) -> list[ChatRow]:
        """Newest first."""
        rows = self._all("SELECT * FROM chats WHERE deleted IS NULL ORDER BY updated DESC LIMIT ?", (limit,))
        return [self._row(row) for row in rows]

    def search(self, text: str, limit: int = 200) -> list[ChatRow]:
        """Chats in whose title or turns the words occur, newest first."""
        text = whole(text)
        words = text.split()
        if not words:
            return self.list(limit)
        found: dict[str, str] = {}
        pattern = f"%{text.replace('%', '').replace('_', ' ')}%"
        for row in self._all(
            "SELECT id, title, first FROM chats WHERE title LIKE ? OR first LIKE ?", (pattern, pattern)
        ):
            found[row["id"]] = row["title"] or row["first"]
        if self._searches:
            query = " ".join('"' + word.replace('"', '""') + '"*' for word in words)
            sql = (
                "SELECT chat, snippet(search, -1, '', '', '…', 12) AS part FROM search WHERE search MATCH ? LIMIT 2000"
            )
            hits = self._all(sql, (query,))
        else:
            sql = "SELECT chat, substr(text, 1, 80) AS part FROM turns WHERE text LIKE ? OR user LIKE ? LIMIT 2000"
            hits = self._all(sql, (pattern, pattern))
        for row in hits:
            found.setdefault(row["chat"], row["part"])
        rows = self._all("SELECT * FROM chats WHERE deleted IS NULL ORDER BY updated DESC")
        return [self._row(row, found[row["id"]]) for row in rows if row["id"] in found][:limit]

    def _row(self, row: sqlite3.Row, part: str = "") -> ChatRow:
        chat = Chat(title=row["title"], turns=[Turn(row["first"])])
        count = self._one("SELECT count(*) AS n FROM turns WHERE chat = ?", (row["id"],))
        return ChatRow(row["id"], chat.name, row["model"], row["updated"], count["n"] if count else 0, part)

    def find(self, prefix: str = "") -> str | None:
        """Id of the newest chat whose id begins so; of the newest of all without one."""
        sql = "SELECT id FROM chats WHERE deleted IS NULL AND substr(id, 1, ?) = ? ORDER BY updated DESC LIMIT 1"
        row = self._one(sql, (len(prefix), prefix))
        return str(row["id"]) if row else None

    def load(self, id: str, head: str | None = None) -> Chat:
        """A chat along its head, or along the branch that ends in turn `head`.

        Raises:
            KeyError: no such chat.
        """
        row = self._one("SELECT * FROM chats WHERE id = ?", (id,))
        if row is None:
            raise KeyError(id)
        by_id = {r["id"]: r for r in self._all("SELECT * FROM turns WHERE chat = ?", (id,))}
        turns: list[Turn] = []
        at = head or row["head"]
        while at in by_id:
            r = by_id.pop(at)
            turns.append(Turn(r["user"], load_answer(r), tuple(json.loads(r["images"])), r["id"]))
            at = r["parent"]
        return Chat(row["id"], row["title"], row["system"], turns[::-1], row["created"])

    def siblings(self, chat: str, turn: str) -> list[str]:
        """Turns with the same parent, oldest first: the branches at this point."""
        parent = self._one("SELECT parent FROM turns WHERE id = ?", (turn,))
        if parent is None:
            return [turn]
        sql = "SELECT id FROM turns WHERE chat = ? AND parent IS ? ORDER BY created"
        return [str(r["id"]) for r in self._all(sql, (chat, parent["parent"]))] or [turn]

    def leaf(self, chat: str, turn: str) -> str:
        """The newest end of the branch that goes through `turn`."""
        sql = "SELECT id FROM turns WHERE chat = ? AND parent = ? ORDER BY created DESC LIMIT 1"
        while (row := self._one(sql, (chat, turn))) is not None:
            turn = str(row["id"])
        return turn


def _whole(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What SQLite can store: it takes no half of a surrogate pair."""
    return tuple(whole(v) if isinstance(v, str) else v for v in values)

"""Calibrations on disk: one JSON file, safe with several processes and with whatever somebody put there.

Reading never fails: what cannot be understood is left out, with a note. Writing reads again under a lock, changes one
entry and replaces the file as a whole, so that no entry is lost and no half-written file is ever seen.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO, Any, cast

from engine import paths
from engine.calibration.record import Calibration, Identity
from engine.paths import write_atomically

KEEP = 64
"""Entries kept; the oldest go first."""
PATIENCE = 60.0
"""Seconds to wait for another process that is measuring, before measuring beside it."""


def default_path() -> Path:
    return paths.cache() / "calibration.json"


class Store:
    """The file at `path`. `notes` are sentences for a person about what was found wrong."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        self.notes: list[str] = []

    def get(self, key: str) -> Calibration | None:
        """The entry of exactly this machine, pair and software, or None: measure."""
        entry = self._read().get(key)
        if entry is None:
            return None
        try:
            found = Calibration.from_json(entry)
        except ValueError as error:
            self._note(f"A calibration in {self.path} cannot be used and will be measured again ({error}).")
            return None
        return found if found.key == key else None

    def near(self, identity: Identity) -> Calibration | None:
        """What was measured with another number of threads, and all else the same: the nearest number, the newest of
        equals. For a start at which other programs hold some of the cores."""
        alike = [one for one in self._all() if one.identity.resembles(identity)]
        gap = {one.key: abs(one.identity.threads - identity.threads) for one in alike}
        newest = sorted(alike, key=lambda one: one.measured_at, reverse=True)
        return min(newest, key=lambda one: gap[one.key], default=None)

    def other(self, target: str, drafter: str) -> Calibration | None:
        """The newest entry of the same names, whatever it was measured with: to show as stale, never to use."""
        return self.newest().get((target, drafter))

    def newest(self) -> dict[tuple[str, str], Calibration]:
        """The newest entry of every (target, drafter), whatever it was measured with."""
        found: dict[tuple[str, str], Calibration] = {}
        for one in self._all():
            names = one.target_name, one.drafter_name
            if names not in found or one.measured_at > found[names].measured_at:
                found[names] = one
        return found

    def put(self, calibration: Calibration) -> bool:
        """Keep an entry. False, with a note, where the file cannot be written: it still serves this run."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock("lock"):
                entries = self._read()
                entries[calibration.key] = calibration.as_json()
                newest = sorted(entries.items(), key=lambda item: _age(item[1]), reverse=True)[:KEEP]
                self._replace(dict(newest))
            return True
        except OSError as error:
            self._note(f"The calibration could not be kept in {self.path} ({error.strerror or error}).")
            return False

    def forget(self, key: str) -> None:
        """Drop an entry, so that the next start measures."""
        try:
            with self._lock("lock"):
                entries = self._read()
                if entries.pop(key, None) is not None:
                    self._replace(entries)
        except OSError as error:
            self._note(f"The calibration in {self.path} could not be changed ({error.strerror or error}).")

    def get_or(self, key: str, measure: Callable[[], Calibration], patience: float = PATIENCE) -> Calibration:
        """The entry, or a new one. Of several processes that lack it one measures, since two would disturb each other;
        the others wait for it, but not for ever."""
        found = self.get(key)
        if found is not None:
            return found
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(self._lock("measuring", patience))
            found = self.get(key)
            if found is None:
                found = measure()
                self.put(found)
        return found

    # ------------------------------------------------------------------------------------------------------------------

    def _all(self) -> list[Calibration]:
        """Every entry that can be read and stands under its own key."""
        found: list[Calibration] = []
        for key, entry in self._read().items():
            with contextlib.suppress(ValueError):
                one = Calibration.from_json(entry)
                if one.key == key:
                    found.append(one)
        return found

    def _read(self) -> dict[str, Any]:
        try:
            text = self.path.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, UnicodeDecodeError) as error:
            self._note(f"The calibrations in {self.path} cannot be read ({error}); they will be measured again.")
            return {}
        if not text.strip():
            return {}
        try:
            whole = json.loads(text)
            entries = whole["entries"]
            if not isinstance(entries, dict):
                raise TypeError("entries")
        except (ValueError, KeyError, TypeError):
            self._note(f"{self.path} is not a calibration file; what is in it will be measured again and replaced.")
            return {}
        return cast("dict[str, Any]", entries)

    def _replace(self, entries: dict[str, Any]) -> None:
        text = json.dumps({"about": "dspark-chat calibrations", "entries": entries}, indent=1)
        write_atomically(self.path, text, durable=True)

    @contextlib.contextmanager
    def _lock(self, kind: str, patience: float = 10.0) -> Generator[None]:
        """Held until the end of the block, or of the process. After `patience` seconds it goes on without: an atomic
        replace keeps the file whole even then."""
        with open(self.path.with_suffix(f".{kind}"), "a", encoding="utf-8") as file:
            _wait(file, patience)
            yield

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def _wait(file: IO[str], patience: float) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() >= end:
                return
            time.sleep(0.05)


def _age(entry: object) -> str:
    return str(cast("dict[str, Any]", entry).get("measured_at", "")) if isinstance(entry, dict) else ""

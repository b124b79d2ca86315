"""What was sent before, newest last, shared by the app and the plain mode: JSON lines, appended, never rewritten."""

from __future__ import annotations

import json
from pathlib import Path

KEEP = 2000


class History:
    """A cursor over past inputs, with the draft that was being written at its end. No path: in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.items: list[str] = _read(path) if path is not None else []
        self._at = len(self.items)
        self._draft = ""

    def add(self, text: str) -> None:
        """Remember an input; an immediate repetition is kept once. A full disk loses history, not the chat."""
        self._draft = ""
        if text.strip() and (not self.items or self.items[-1] != text):
            self.items.append(text)
            if self._path is not None:
                try:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    with self._path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(text, ensure_ascii=False) + "\n")
                except OSError:
                    self._path = None
        self._at = len(self.items)

    def back(self, current: str) -> str | None:
        """The input before; None at the beginning."""
        if self._at == 0:
            return None
        if self._at == len(self.items):
            self._draft = current
        self._at -= 1
        return self.items[self._at]

    def forward(self) -> str | None:
        """The input after, at last the draft; None when already there."""
        if self._at >= len(self.items):
            return None
        self._at += 1
        return self._draft if self._at == len(self.items) else self.items[self._at]

    def search(self, needle: str, before: int | None = None) -> int | None:
        """Index of the newest input older than `before` that contains `needle`."""
        for i in range((len(self.items) if before is None else before) - 1, -1, -1):
            if needle.lower() in self.items[i].lower():
                return i
        return None


def _read(path: Path) -> list[str]:
    try:
        rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    items: list[str] = []
    for row in rows[-KEEP:]:
        try:
            value = json.loads(row)
        except ValueError:
            continue
        if isinstance(value, str):
            items.append(value)
    return items

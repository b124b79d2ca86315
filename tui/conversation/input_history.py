"""What was sent before, newest last, shared by the app and the plain mode: JSON lines, appended, never rewritten.

A line is the text, or an object with the text, the shorter form in which it was written, and what its chips stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import paths

KEEP = 2000


@dataclass(frozen=True, slots=True)
class Form:
    """A message as it was written, with long pastes as chips."""

    shown: str
    pastes: Mapping[str, str] = field(default_factory=dict[str, str])


class History:
    """A cursor over past inputs, with the draft that was being written at its end. No path: in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.items: list[str] = []
        """Whole texts."""
        self._forms: dict[str, Form] = {}
        for text, form in _read(path) if path is not None else []:
            self._keep(text, form)
        self._at = len(self.items)
        self._draft = ""

    def add(self, text: str, form: Form | None = None) -> None:
        """Remember an input; an immediate repetition is kept once. A full disk loses history, not the chat."""
        self._draft = ""
        if text.strip() and (not self.items or self.items[-1] != text):
            self._keep(text, form)
            if self._path is not None:
                row = text if form is None else {"text": text, "shown": form.shown, "pastes": dict(form.pastes)}
                try:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    paths.keep_private(self._path)
                    with self._path.open("a", encoding="utf-8", errors="replace") as file:
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
                except OSError:
                    self._path = None
        self._at = len(self.items)

    def form(self, text: str) -> Form:
        """How a past input was written."""
        return self._forms.get(text) or Form(text)

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

    def search_on(self, needle: str, after: int) -> int | None:
        """Index of the oldest input newer than `after` that contains `needle`."""
        found = (i for i in range(after + 1, len(self.items)) if needle.lower() in self.items[i].lower())
        return next(found, None)

    def _keep(self, text: str, form: Form | None) -> None:
        self.items.append(text)
        if form is not None:
            self._forms[text] = form


@dataclass(slots=True)
class Search:
    """A search backwards through the history, as shells have it."""

    inputs: History
    draft: str
    """What was written before; comes back when the search is given up."""
    needle: str = ""
    at: int | None = None
    """Index of what is found."""
    failing: bool = False

    @property
    def found(self) -> str | None:
        return self.inputs.items[self.at] if self.at is not None else None

    def say(self, needle: str) -> None:
        """Another needle: what is found stays when it still fits, else the next older one that does."""
        self.needle = needle
        stays = self.at is not None and needle.lower() in self.inputs.items[self.at].lower()
        self._go(self.at if stays else self.inputs.search(needle, self.at) if needle else None)

    def older(self) -> None:
        self._go(self.inputs.search(self.needle, self.at))

    def newer(self) -> None:
        self._go(self.inputs.search_on(self.needle, self.at if self.at is not None else len(self.inputs.items)))

    def _go(self, at: int | None) -> None:
        self.failing = at is None and bool(self.needle)
        if at is not None:
            self.at = at


def _read(path: Path) -> list[tuple[str, Form | None]]:
    try:
        rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    items: list[tuple[str, Form | None]] = []
    for row in rows[-KEEP:]:
        try:
            value = json.loads(row)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, str):
            items.append((value, None))
        elif isinstance(value, dict) and isinstance(value.get("text"), str):
            items.append((value["text"], _form(value)))
    return items


def _form(value: dict[str, Any]) -> Form | None:
    """A damaged form costs the chips, not the text."""
    shown, pastes = value.get("shown"), value.get("pastes")
    if not isinstance(shown, str) or not isinstance(pastes, dict):
        return None
    return Form(shown, pastes) if all(isinstance(part, str) for part in pastes.values()) else None

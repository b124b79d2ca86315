"""What the text at the cursor could become: commands, their words, and files after an @. No widgets.

The app shows the candidates under the message, the plain mode in its own menu.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.chat.terminal_safe import one_line
from tui.commands import registry
from tui.commands.host import Choice, Host
from tui.conversation import project_files

MOST = 50
FRESH_S = 10.0
"""Files of the project are looked for again after this."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possibility: `text` takes the place of what is written from column `start` on."""

    start: int
    text: str
    label: str
    note: str = ""
    sends: bool = False
    """Whole: choosing it carries it out."""
    first: bool = False
    """Taken by Enter although nobody moved to it."""


class Project:
    """The files around, looked up at most every few seconds. `look` reads folders and may take a second."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._names: list[str] = []
        self._at: float | None = None

    @property
    def stale(self) -> bool:
        return self._at is None or time.monotonic() - self._at > FRESH_S

    def look(self) -> None:
        self._names = project_files.project_files(self._root or Path.cwd())
        self._at = time.monotonic()

    def find(self, word: str) -> list[str]:
        if project_files.is_path(word):
            return project_files.listed(word)[:MOST]
        return project_files.match(word, self._names, MOST)


def candidates(host: Host, before: str, project: Project) -> list[Candidate]:
    """For the line up to the cursor. `before` is the whole message when that is one line."""
    begun = project_files.begun(before)
    if begun is not None:
        return _files(begun, project)
    if before.startswith("/") and not before.startswith("//"):
        name, space, words = before[1:].partition(" ")
        return _words(host, name, words.lstrip()) if space else _commands(host, before)
    return []


def wants_files(before: str) -> bool:
    """Whether the project's files are needed."""
    begun = project_files.begun(before)
    return begun is not None and not project_files.is_path(begun[1])


def _files(begun: tuple[int, str], project: Project) -> list[Candidate]:
    start, word = begun
    out: list[Candidate] = []
    for name in project.find(word):
        mention = project_files.mention(name)
        if mention is not None:
            folder = name.endswith("/")
            # A folder stays open, so that its files come next; a quote of its own is closed with the file.
            text = mention.rstrip("\"'") if folder else f"{mention} "
            out.append(Candidate(start, text, one_line(name), first=True))
    exact = len(out) == 1 and out[0].text.rstrip() == f"@{word}"
    return [] if exact else out


def _commands(host: Host, before: str) -> list[Candidate]:
    found = registry.complete(host, before)
    return [Candidate(0, f"/{c.name} " if c.words else f"/{c.name}", c.usage, c.help, not c.words) for c in found]


def _words(host: Host, name: str, words: str) -> list[Candidate]:
    command = registry.find(name)
    if command is None or command.words_of is None:
        return []
    possible: Sequence[Choice] = command.words_of(host, words)
    low = words.lower()
    fits = [p for p in possible if p[0].lower().startswith(low)] or [p for p in possible if low and low in p[0].lower()]
    if [text for text, _ in fits] == [words]:
        return []
    return [
        Candidate(0, f"/{name} {text}", one_line(text), note, sends=not text.endswith((" ", "/")))
        for text, note in fits[:MOST]
    ]

"""Files to name in a message: those of the project around, found by a few letters; hidden and ignored ones stay out.

Knows folders, and no screen.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.chat.terminal_safe import one_line

LIMIT = 20_000
SECONDS = 1.0
"""Looking through folders ends there: a picker that comes late is no help."""
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "dist", "build", "target", "site-packages"})
"""Folders that hold what others made; where a version control says what is ignored, it decides."""
BEGUN = re.compile(r"""(?:^|(?<=\s))@(?:"([^"\n]*)|'([^'\n]*)|((?:\\.|[^\s\\"'])*))$""")
"""A mention that is being written, up to the cursor."""


def begun(before: str) -> tuple[int, str] | None:
    """(where it starts, what is written of it) of the mention at the end of `before`."""
    match = BEGUN.search(before)
    if match is None:
        return None
    word = next((group for group in match.groups() if group is not None), "")
    return match.start(), re.sub(r"\\(.)", r"\1", word)


def mention(path: str) -> str | None:
    """`@path`, quoted where it must be; None for a name that cannot be written on a line."""
    if path != one_line(path) or ('"' in path and "'" in path):
        return None
    if not re.search(r"""[\s"'\\]""", path):
        return f"@{path}"
    return f"@'{path}'" if '"' in path else f'@"{path}"'


def project_files(root: Path) -> list[str]:
    """Files below `root`, those near it first."""
    names = _from_git(root)
    if names is None:
        names = _walk(root)
    return sorted((n for n in names if mention(n)), key=lambda n: (n.count("/"), n.lower()))


def listed(begun: str) -> list[str]:
    """What lies in the folder that a path names so far and begins as it does; folders end in a slash."""
    head, _, tail = begun.rpartition("/")
    folder = Path(f"{head}/").expanduser()
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name.lower())[:LIMIT]
    except (OSError, ValueError):
        return []
    out: list[str] = []
    for entry in entries:
        if entry.name.startswith(".") and not tail.startswith("."):
            continue
        if not entry.name.lower().startswith(tail.lower()):
            continue
        try:
            name = f"{head}/{entry.name}" + ("/" if entry.is_dir() else "")
        except OSError:
            continue
        if mention(name):
            out.append(name)
    return out


def is_path(word: str) -> bool:
    """Whether a word begun names a place by itself, instead of a file of the project."""
    return word.startswith(("/", "~/", "./", "../"))


def match(word: str, names: Iterable[str], limit: int = 50) -> list[str]:
    """The names that fit best, best first."""
    ranked = ((rank, len(name), at, name) for at, name in enumerate(names) if (rank := fit(word, name)) is not None)
    return [name for *_, name in sorted(ranked)[:limit]]


def fit(word: str, name: str) -> int | None:
    """How well the letters fit: 0 best, None not at all."""
    needle, low = word.lower(), name.lower()
    base = low.rstrip("/").rpartition("/")[2]
    if base.startswith(needle) or low.startswith(needle):
        return 0
    if needle in base:
        return 1
    if needle in low:
        return 2
    if _in_order(needle, base):
        return 3
    return 4 if _in_order(needle, low) else None


def _in_order(needle: str, text: str) -> bool:
    letters = iter(text)
    return all(letter in letters for letter in needle)


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _from_git(root: Path) -> list[str] | None:
    """What git follows or would follow; None where there is no git."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=3 * SECONDS, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    names = done.stdout.decode("utf-8", "replace").split("\0")[:LIMIT]
    return [n for n in dict.fromkeys(names) if n and not _hidden(n) and (root / n).is_file()]


def _walk(root: Path) -> list[str]:
    """Near folders first, until there are enough or it took too long."""
    ignored = _patterns(root)
    out: list[str] = []
    waiting, end = deque([""]), time.monotonic() + SECONDS
    while waiting and len(out) < LIMIT and time.monotonic() < end:
        prefix = waiting.popleft()
        try:
            entries = list(os.scandir(root / prefix))
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or any(fnmatch.fnmatch(entry.name, p) for p in ignored):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED:
                    waiting.append(f"{prefix}{entry.name}/")
            else:
                out.append(prefix + entry.name)
    return out


def _patterns(root: Path) -> Sequence[str]:
    """The simple names of an ignore file that no version control reads here."""
    try:
        lines = (root / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    names = (line.strip().strip("/") for line in lines if line.strip() and line[0] not in "#!")
    return [name for name in names if "/" not in name]

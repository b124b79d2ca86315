"""What the app remembers of how it was left (theme, view, panels), and the key map and mouse of the settings file.

A damaged file costs the memory, never the start.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tui.keys import KEYS


@dataclass(slots=True)
class Prefs:
    """Choices made in the app; written when they change."""

    theme: str = ""
    view: str = "source"
    panels: str = "all"
    recent: str = ""
    """Models, newest first, a line each."""


def load(path: Path) -> Prefs:
    prefs = Prefs()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return prefs
    for field in fields(Prefs):
        if isinstance(data, dict) and isinstance(data.get(field.name), str):
            setattr(prefs, field.name, data[field.name])
    return prefs


def save(path: Path, prefs: Prefs) -> None:
    """Replace the file as a whole; a full disk is not worth a word."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(prefs)), encoding="utf-8")
        part.replace(path)
    except OSError:
        return


@dataclass(frozen=True, slots=True)
class Wishes:
    """Tables of the settings file that belong to the app."""

    keys: dict[str, str]
    mouse: bool = True
    notes: tuple[str, ...] = ()
    """Sentences about entries that were not understood."""


def wishes(path: Path) -> Wishes:
    """`[keys]` (id = "key,key") and `[app]` (mouse = false) of the settings file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the command line has said so already
        return Wishes({})
    notes: list[str] = []
    known = {key.id for key in KEYS if key.keys}
    keys: dict[str, str] = {}
    for id, value in _table(data, "keys").items():
        if id in known and isinstance(value, str) and value.strip():
            keys[id] = value
        else:
            notes.append(f"[keys] {id} is left out: ids are listed in docs/keys.md, values are like “ctrl+x”.")
    return Wishes(keys, _table(data, "app").get("mouse", True) is not False, tuple(notes))


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name, {})
    return value if isinstance(value, dict) else {}

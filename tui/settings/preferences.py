"""What the app remembers of how it was left (theme, view, panels), and the key map and mouse of the settings file.

A damaged file costs the memory, never the start.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.chat.terminal_safe import one_line
from engine.paths import write_atomically
from tui.settings.keymap import keymap

Mouse = Literal["on", "wheel", "off"]
MICE: dict[str, Mouse] = {"on": "on", "wheel": "wheel", "off": "off"}


NAMES = ("theme", "view", "panels", "recent")


class Preferences:
    """Choices made in the app; written when they change."""

    theme = ""
    view = "source"
    panels = "all"
    recent = ""
    """Models, newest first, a line each."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        """write: whether choices are kept for the next start."""
        self._path = path if write else None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        for name in NAMES:
            if isinstance(data, dict) and isinstance(data.get(name), str):
                setattr(self, name, data[name])

    def remember(self, **choices: str) -> None:
        """Keep choices for the next start. Replaces the file as a whole; a full disk is not worth a word."""
        for name, value in choices.items():
            setattr(self, name, value)
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps({name: getattr(self, name) for name in NAMES}))
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class Wishes:
    """Tables of the settings file that belong to the app."""

    keys: dict[str, str]
    mouse: Mouse = "on"
    thumbnails: bool = True
    """Whether small pictures stand under a message that sent some."""
    notes: tuple[str, ...] = ()
    """Sentences about entries that were not understood."""


def wishes(path: Path) -> Wishes:
    """`[keys]` (id = "key,key") and `[app]` (mouse = "wheel", thumbnails = false) of the settings file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the command line has said so already
        return Wishes({})
    keys, notes = keymap(_table(data, "keys"))
    given = _table(data, "app").get("mouse", "on")
    word = ("on" if given else "off") if isinstance(given, bool) else given
    mouse = MICE.get(word) if isinstance(word, str) else None
    if mouse is None:
        notes.append(f"[app] mouse is on, wheel or off, not {one_line(str(given))[:40]}; it is on.")
    thumbnails = _table(data, "app").get("thumbnails", True)
    if not isinstance(thumbnails, bool):
        notes.append(f"[app] thumbnails is true or false, not {one_line(str(thumbnails))[:40]}; it is true.")
    return Wishes(keys, mouse or "on", thumbnails is not False, tuple(notes))


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name, {})
    return value if isinstance(value, dict) else {}

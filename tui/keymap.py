"""The key map of the settings file: which keys the user wants for an id, and what is wrong with a wish. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.sanitize import one_line
from tui.keys import KEYS, pretty

OURS = {
    **dict.fromkeys(("enter", "ctrl+j", "shift+enter", "alt+enter", "ctrl+enter"), "sends or breaks the line"),
    **dict.fromkeys(("up", "down", "left", "right", "home", "end", "backspace", "delete", "tab"), "edits the message"),
}
"""Keys of the message itself."""
_NAMED = (
    "escape|enter|tab|space|backspace|delete|insert|home|end|pageup|pagedown|up|down|left|right|minus|plus|comma|"
    "full_stop|slash|backslash|semicolon|colon|question_mark|underscore|at|circumflex_accent|tilde|left_square_bracket|"
    "right_square_bracket|equals_sign|apostrophe|grave_accent"
)
_KEY = re.compile(rf"(?:(?:ctrl|alt|shift|super|meta|hyper)\+)*(?:[a-z0-9]|f(?:[1-9]|1\d|2[0-4])|{_NAMED})")


def keymap(table: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """(keys by id, sentences about what was left out). What is left out keeps its own key."""
    known = {key.id: key for key in KEYS if key.keys}
    notes: list[str] = []
    wanted: dict[str, str] = {}
    for id, value in table.items():
        name = one_line(str(id))[:40]
        if id not in known:
            notes.append(f"[keys] {name} is left out: there is no such id; docs/keys.md lists them.")
            continue
        keys = [key.strip().lower() for key in value.split(",")] if isinstance(value, str) else []
        trouble = next(
            (why for key in keys if (why := _trouble(key))), "" if keys else "a key is written like “ctrl+x”"
        )
        if trouble:
            notes.append(f"[keys] {name} is left out: {trouble}.")
        else:
            wanted[id] = ",".join(keys)
    while clash := _clash({id: wanted.get(id, key.keys) for id, key in known.items()}, wanted):
        id, other, key = clash
        del wanted[id]
        notes.append(f"[keys] {id} is left out: {pretty(key)} belongs to {other}, which needs another key first.")
    return wanted, notes


def _trouble(key: str) -> str:
    """Why a key cannot be mapped; nothing when it can."""
    shown = one_line(key)[:40]
    if not _KEY.fullmatch(key):
        return f"“{shown}” is no key; one is written like “ctrl+x”, “alt+enter” or “f9”"
    if key in OURS:
        return f"{pretty(key)} {OURS[key]}"
    if "+" not in key and not re.fullmatch(r"f\d+|escape|insert|page(up|down)", key):
        return f"{pretty(key)} writes text"
    return ""


def _clash(keys: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, str, str] | None:
    """(id to leave out, the id that has the key, the key); wishes give way, the later one first."""
    owner: dict[str, str] = {}
    for id in [*(i for i in keys if i not in wanted), *wanted]:
        for key in keys[id].split(","):
            if key in owner and owner[key] != id:
                return (id if id in wanted else owner[key]), (owner[key] if id in wanted else id), key
            owner[key] = id
    return None

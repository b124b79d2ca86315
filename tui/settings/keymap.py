"""The key map of the settings file: which keys the user wants for an id, and what is wrong with a wish. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.chat.terminal_safe import one_line
from tui.keys import KEYS, READING, SHARED, pretty

OURS = {
    **dict.fromkeys(("left", "right", "home", "end", "backspace", "delete"), "edits the message"),
    **dict.fromkeys(("enter", "up", "down", "tab"), "belongs to the message, or to the block cursor"),
}
"""Keys without which nothing can be written: what they do in a message only an id of the message may change."""
EDITING = frozenset({"left", "right", "home", "end", "backspace", "delete"})
ON_BLOCKS = frozenset(key.id for key in READING)
IN_MESSAGE = frozenset(key.id for key in KEYS if not key.action)
_NAMED = (
    "escape|enter|tab|space|backspace|delete|insert|home|end|pageup|pagedown|up|down|left|right|minus|plus|comma|"
    "full_stop|slash|backslash|semicolon|colon|question_mark|underscore|at|circumflex_accent|tilde|left_square_bracket|"
    "right_square_bracket|equals_sign|apostrophe|grave_accent"
)
_KEY = re.compile(rf"(?:(?:ctrl|alt|shift|super|meta|hyper)\+)*(?:[a-z0-9]|[A-Z]$|f(?:[1-9]|1\d|2[0-4])|{_NAMED})")


def keymap(table: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """(keys by id, sentences about what was left out). What is left out keeps its own key."""
    known = {key.id: key for key in (*KEYS, *READING)}
    notes: list[str] = []
    wanted: dict[str, str] = {}
    for id, value in table.items():
        name = one_line(str(id))[:40]
        if id not in known:
            notes.append(f"[keys] {name} is left out: there is no such id; docs/keys.md lists them.")
            continue
        keys = [_plain(key) for key in value.split(",")] if isinstance(value, str) else []
        trouble = next(
            (why for key in keys if (why := _trouble(id, key))), "" if keys else "a key is written like “ctrl+x”"
        )
        if trouble:
            notes.append(f"[keys] {name} is left out: {trouble}.")
        else:
            wanted[id] = ",".join(dict.fromkeys(keys))
    while clash := _clash({id: wanted.get(id, key.keys) for id, key in known.items()}, wanted):
        id, other, key = clash
        del wanted[id]
        notes.append(f"[keys] {id} is left out: {pretty(key)} belongs to {other}, which needs another key first.")
    return wanted, notes


def _plain(key: str) -> str:
    """As Textual writes it; a letter alone may be a capital."""
    key = key.strip()
    return key if len(key) == 1 else key.lower()


def _trouble(id: str, key: str) -> str:
    """Why a key cannot be mapped to an id; nothing when it can."""
    shown = one_line(key)[:40]
    if not _KEY.fullmatch(key):
        return f"“{shown}” is no key; one is written like “ctrl+x”, “alt+enter” or “f9”"
    if id in ON_BLOCKS:
        return ""
    if key in OURS and (key in EDITING or id not in IN_MESSAGE):
        return f"{pretty(key)} {OURS[key]}"
    if "+" not in key and key not in OURS and not re.fullmatch(r"f\d+|escape|insert|page(up|down)", key):
        return f"{pretty(key)} writes text"
    return ""


def _clash(keys: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, str, str] | None:
    """(id to leave out, the id that has the key, the key); wishes give way, the later one first."""
    owners: dict[str, list[str]] = {}
    for id in [*(i for i in keys if i not in wanted), *wanted]:
        for key in keys[id].split(","):
            for other in owners.setdefault(key, []):
                if _together(id, other):
                    return (id if id in wanted else other), (other if id in wanted else id), key
            owners[key].append(id)
    return None


def _together(id: str, other: str) -> bool:
    """Whether two ids want their keys at the same time: those of the message and those of the block cursor never do."""
    if {id, other} == SHARED or id == other:
        return False
    return not ((id in ON_BLOCKS and other in IN_MESSAGE) or (other in ON_BLOCKS and id in IN_MESSAGE))

"""Presets: sampling, system prompt, thinking and drafter under a name, as `[presets.NAME]` in the settings file.

A preset is laid over the settings of the start, so that two presets never mix. No widgets.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import config as declared
from engine import paths
from engine.chat.terminal_safe import one_line
from engine.config import MODEL, about, convert
from engine.errors import UsageError, did_you_mean
from tui.conversation.session import ChatSession
from tui.settings import toml_file
from tui.settings.settings import said

TABLE = "presets"
WORDS = ("save", "delete", "list", "none")
"""No names, since they are commands."""
LONGEST = 40


def holds() -> dict[str, Any]:
    """The settings that a preset may hold, by name."""
    return {s.name: s for s in declared.settings() if about(s).preset}


def names(file: Path | None = None) -> list[str]:
    return [name for name, value in toml_file.table(file or paths.settings_file(), TABLE).items() if _table(value)]


def read(name: str) -> dict[str, Any]:
    """The values of a preset.

    Raises:
        UsageError: no such preset, or an entry that is not understood, named with what is allowed.
    """
    preset = toml_file.table(paths.settings_file(), TABLE).get(name)
    if not isinstance(preset, dict):
        known = [one_line(n) for n in names()]
        there = f"there are {', '.join(known)}." if known else "/preset save NAME makes one."
        raise UsageError(f"There is no preset {one_line(name)}; {there}{did_you_mean(name, known)}")
    values: dict[str, Any] = {}
    for key, value in preset.items():
        if key not in holds():
            raise UsageError(
                f"The preset {one_line(name)} has an entry `{one_line(key)}`; it can hold {', '.join(holds())}."
            )
        values[key] = convert(holds()[key], value, f"The preset {one_line(name)}: `{key}`")
    return values


def use(session: ChatSession, name: str) -> str:
    """Lay a preset over the settings of the start; the sentence that says so.

    Raises:
        UsageError: nothing has changed then.
    """
    values = read(name)
    sources = {**session.start.sources, **dict.fromkeys(values, f"preset {name}")}
    drafter = values.pop("drafter", None)
    session.config = replace(session.start, **values, sources=sources)
    session.chat.system = session.config.system
    session.preset = name
    trouble = session.use(drafter) if drafter else ""
    return f"Preset {one_line(name)} from the next answer on. {trouble}".rstrip()


def leave(session: ChatSession) -> str:
    """Back to the settings of the start."""
    session.config = session.start
    session.chat.system = session.config.system
    session.preset = ""
    return "No preset: the settings of the start hold from the next answer on."


def save(session: ChatSession, name: str) -> str:
    """Keep what was decided, under a name. What the model recommends is left to the model.

    Raises:
        UsageError: a name that cannot be one, or a file that cannot be written.
    """
    if not name or name != one_line(name) or len(name) > LONGEST or name in WORDS:
        raise UsageError(f"A preset's name is a word or two, up to {LONGEST} characters, and not {', '.join(WORDS)}.")
    config = session.config
    values = {
        key: getattr(config, key)
        for key in holds()
        if config.sources.get(key, MODEL) != MODEL and getattr(config, key) is not None
    }
    values |= {"system": session.chat.system}
    if session.drafter:
        values["drafter"] = session.drafter
    existed = name in names()
    toml_file.change(paths.settings_file(), {(TABLE, name): values})
    session.preset = name
    return f"Preset {name} is {'written anew' if existed else 'kept'}; /preset {name} uses it."


def delete(session: ChatSession, name: str) -> str:
    """Take a preset out of the file; what it set stays as it is.

    Raises:
        UsageError: no such preset, or a file that cannot be written.
    """
    if name not in names():
        read(name)
    toml_file.change(paths.settings_file(), {(TABLE, name): None})
    if session.preset == name:
        session.preset = ""
    return f"The preset {one_line(name)} is gone."


def listing(session: ChatSession) -> str:
    """One line for each preset."""
    presets = toml_file.table(paths.settings_file(), TABLE)
    out: list[str] = []
    for name in names():
        parts = [f"{key} {_brief(value)}" for key, value in presets[name].items()]
        out.append(f"{'›' if name == session.preset else ' '} {one_line(name)}  {', '.join(parts)}")
    return "\n".join(out) or "There is no preset; /preset save NAME keeps what is set now."


def _brief(value: Any) -> str:
    text = one_line(said(value))
    return f"“{text[:30]}…”" if len(text) > 31 else text or "empty"


def _table(value: Any) -> bool:
    return isinstance(value, dict)

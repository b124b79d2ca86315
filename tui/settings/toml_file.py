"""Changing the settings file: single entries, with comments and unknown entries kept, and never half written.

Knows TOML and files; what an entry means is `engine.config`'s business.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, cast

from engine.errors import UsageError
from engine.paths import write_atomically

Entry = tuple[str, ...]
"""`("temperature",)` is a plain entry, `("presets", "terse")` one of a table."""


class NotWritten(UsageError):
    """The settings file stays as it was."""


def change(file: Path, entries: Mapping[Entry, Any]) -> None:
    """Set these entries, or take out those whose value is None. All of them are written, or none.

    Raises:
        NotWritten: a file that is read-only or no TOML, or a folder that cannot be written to.
    """
    import tomlkit  # not needed to read the file, which every start does
    from tomlkit.exceptions import TOMLKitError

    file = Path(os.path.realpath(file))  # a link into somebody's dotfiles stays a link
    text = _read(file)
    try:
        document = tomlkit.parse(text)
        for path, value in entries.items():
            _put(document, path, value)
        written = tomlkit.dumps(document)
    except (TOMLKitError, TypeError, ValueError, AttributeError) as error:
        raise NotWritten(f"{file} is not valid TOML ({error}), so nothing was written; mend it first.") from error
    _replace(file, written)


def table(file: Path, name: str) -> dict[str, Any]:
    """One table of the file as plain values; empty when there is none, or no readable file."""
    import tomllib

    try:
        value = tomllib.loads(file.read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _put(document: MutableMapping[str, Any], path: Entry, value: Any) -> None:
    import tomlkit

    at = document
    for part in path[:-1]:
        if part not in at:
            if value is None:
                return
            at[part] = tomlkit.table(is_super_table=len(path) > 2)
        at = at[part]
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value


def _read(file: Path) -> str:
    """Text with its own line ends; a file that is not there yet is empty."""
    try:
        mode = file.stat().st_mode
        # Asking the mode as well: for the superuser nothing is read-only, and still somebody meant it.
        if not mode & 0o222 or not os.access(file, os.W_OK):
            raise NotWritten(f"{file} is read-only, so nothing was written to it.")
        with file.open(encoding="utf-8", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise NotWritten(f"{file} cannot be read ({_reason(error)}), so nothing was written to it.") from error


def _replace(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text, durable=True)
    except OSError as error:
        raise NotWritten(f"{file} cannot be written: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)

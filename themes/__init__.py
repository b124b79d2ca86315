"""Themes as data files, and their loader: built-in and user themes come the same way. Standard library only.

A file that cannot be used is listed with the reason and never stops the program.

    [theme]    title, dark
    [colors]   primary, secondary, accent, foreground, background, surface, panel, warning, error, success
    [source]   target, draft, lookup, rejected: a colour each, and optionally <name>-style (bold, underline, strike, …)
    [syntax]   keyword, string, number, comment, function, class, builtin, operator, deleted
    [variables]  further variables, passed on as they are
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT = "dspark-dark"
COLORS = (
    "primary", "secondary", "accent", "foreground", "background", "surface", "panel", "warning", "error", "success",
)  # fmt: skip
SOURCES = ("target", "draft", "lookup", "rejected")
SYNTAX = ("keyword", "string", "number", "comment", "function", "class", "builtin", "operator", "deleted")
STYLES = frozenset({"none", "bold", "dim", "italic", "underline", "strike", "reverse"})

_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_VALUE = re.compile(r"[\w#.% -]+")


@dataclass(frozen=True, slots=True)
class Theme:
    """One theme, checked."""

    name: str
    title: str
    dark: bool
    colors: Mapping[str, str]
    source: Mapping[str, str]
    """Foreground of each source, `#rrggbb`."""
    styles: Mapping[str, str]
    """Attributes of each source, `none` or names separated by blanks; they carry the difference where colour cannot."""
    syntax: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    path: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that is no theme, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Themes:
    themes: Mapping[str, Theme]
    failures: tuple[Failure, ...] = ()


def load(user: Path | None = None) -> Themes:
    """All themes: the built-in ones, then those of folder `user`, which may replace them by name."""
    found: dict[str, Theme] = {}
    failures: list[Failure] = []
    for folder in (Path(__file__).parent, user):
        if folder is None or not folder.is_dir():
            continue
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read(path)
            except (OSError, ValueError) as error:
                failures.append(Failure(str(path), str(error)))
            else:
                found[theme.name] = theme
    return Themes(found, tuple(failures))


def read(path: Path) -> Theme:
    """One file.

    Raises:
        ValueError: with what is wrong and where (tomllib's own errors are ValueErrors too).
    """
    if not _NAME.fullmatch(path.stem):
        raise ValueError("the file name must be lower-case letters, digits and hyphens, since it is the theme's name")
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    head = _table(data, "theme")
    dark = head.get("dark", True)
    if not isinstance(dark, bool):
        raise ValueError("[theme] dark must be true or false")
    source = _table(data, "source")
    return Theme(
        name=path.stem,
        title=str(head.get("title", path.stem)),
        dark=dark,
        colors=_colors(_table(data, "colors"), "colors", COLORS),
        source=_colors({k: v for k, v in source.items() if not k.endswith("-style")}, "source", SOURCES),
        styles=_styles(source),
        syntax=_colors(_table(data, "syntax"), "syntax", SYNTAX),
        variables=_variables(_table(data, "variables")),
        path=str(path),
    )


def _table(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"[{name}] must be a table")
    return value


def _colors(table: Mapping[str, Any], name: str, wanted: tuple[str, ...]) -> dict[str, str]:
    unknown = sorted(set(table) - set(wanted))
    if unknown:
        raise ValueError(f"[{name}] has no entry called {unknown[0]}; known are {', '.join(wanted)}")
    missing = [key for key in wanted if key not in table]
    if missing:
        raise ValueError(f"[{name}] lacks {', '.join(missing)}")
    for key, value in table.items():
        if not isinstance(value, str) or not _HEX.fullmatch(value):
            raise ValueError(f"[{name}] {key} must be a colour like #56b4e9, not {value!r}")
    return {key: str(table[key]) for key in wanted}


def _styles(table: Mapping[str, Any]) -> dict[str, str]:
    styles = {}
    for key in SOURCES:
        value = table.get(f"{key}-style", "none")
        if not isinstance(value, str) or not set(value.split()) <= STYLES or not value.split():
            raise ValueError(f"[source] {key}-style must be some of {', '.join(sorted(STYLES))}, not {value!r}")
        styles[key] = value
    extra = [key for key in table if key.endswith("-style") and key.removesuffix("-style") not in SOURCES]
    if extra:
        raise ValueError(f"[source] has no entry called {extra[0]}")
    return styles


def _variables(table: Mapping[str, Any]) -> dict[str, str]:
    for key, value in table.items():
        if not _NAME.fullmatch(key) or not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError(f"[variables] {key} must be a plain value such as #56b4e9 or 40%")
    return dict(table)

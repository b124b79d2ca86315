"""From theme data to Textual: our variables for every theme, also for Textual's own ones and for 16 colours."""

from __future__ import annotations

from textual.theme import Theme as TextualTheme

from themes import SOURCES, SYNTAX, Theme, Themes

ANSI = "ansi-dark"
"""Used when colour is not wanted: the terminal's own colours, and attributes where sources must differ."""

_ANSI = {
    "source-target": "ansi_default",
    "source-draft": "ansi_bright_cyan",
    "source-lookup": "ansi_yellow",
    "source-rejected": "ansi_default",
    "source-target-style": "none",
    "source-draft-style": "none",
    "source-lookup-style": "underline",
    "source-rejected-style": "strike",
}
_MONO = {
    **{f"source-{name}": "ansi_default" for name in SOURCES},
    "source-target-style": "bold",
    "source-draft-style": "none",
    "source-lookup-style": "underline",
    "source-rejected-style": "strike",
}


def to_textual(theme: Theme) -> TextualTheme:
    return TextualTheme(
        name=theme.name,
        dark=theme.dark,
        variables={**variables(theme), **theme.variables},
        **{key: value for key, value in theme.colors.items()},
    )


def variables(theme: Theme) -> dict[str, str]:
    """The variables that our style sheets name."""
    out = {f"source-{name}": theme.source[name] for name in SOURCES}
    out |= {f"source-{name}-style": theme.styles[name] for name in SOURCES}
    return out | {f"syntax-{name}": theme.syntax[name] for name in SYNTAX}


def defaults(themes: Themes, *, dark: bool, ansi: bool, no_color: bool) -> dict[str, str]:
    """Variables for a theme that does not bring them itself."""
    base = variables(themes.themes["dspark-dark" if dark else "dspark-light"])
    if not ansi:
        return base
    plain = {f"syntax-{name}": "ansi_default" for name in SYNTAX}
    return base | plain | (_MONO if no_color else _ANSI)

"""From theme data to Textual: our variables for every theme, also for Textual's own ones and for 16 colours."""

from __future__ import annotations

from textual.theme import Theme as TextualTheme

from themes import SOURCES, SYNTAX, Theme, Themes

ANSI = "ansi-dark"
"""Used when colour is not wanted: the terminal's own colours, and attributes where sources must differ."""

FAINT = 0.62
"""How much of the foreground is in labels, borders and figures."""

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
    c = theme.colors
    return TextualTheme(
        name=theme.name,
        primary=c["primary"],
        secondary=c["secondary"],
        accent=c["accent"],
        foreground=c["foreground"],
        background=c["background"],
        surface=c["surface"],
        panel=c["panel"],
        warning=c["warning"],
        error=c["error"],
        success=c["success"],
        dark=theme.dark,
        variables={**variables(theme), **theme.variables},
    )


def variables(theme: Theme) -> dict[str, str]:
    """The variables that our style sheets name."""
    out = {f"source-{name}": theme.source[name] for name in SOURCES}
    out |= {f"source-{name}-style": theme.styles[name] for name in SOURCES}
    front, back = theme.colors["foreground"], theme.colors["background"]
    out["faint"] = mix(front, back, FAINT)
    out["tint-odd"], out["tint-even"] = mix(front, back, 0.18), mix(front, back, 0.07)
    return out | {f"syntax-{name}": theme.syntax[name] for name in SYNTAX}


def mix(a: str, b: str, share: float) -> str:
    """`share` of colour a, the rest of b."""
    pairs = [(int(a[i : i + 2], 16), int(b[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(x * share + y * (1 - share)):02x}" for x, y in pairs)


def defaults(themes: Themes, *, dark: bool, ansi: bool, no_color: bool) -> dict[str, str]:
    """Variables for a theme that does not bring them itself."""
    base = variables(themes.themes["dspark-dark" if dark else "dspark-light"])
    if not ansi:
        return base
    plain = {"faint": "ansi_default", "tint-odd": "ansi_default", "tint-even": "ansi_default"} | {
        f"syntax-{name}": "ansi_default" for name in SYNTAX
    }
    return base | plain | (_MONO if no_color else _ANSI)

"""The settings as a person sees and changes them: `/set`, the settings screen, the help and docs/settings.md.

Everything comes from the declarations in `engine.config`; nothing here knows a particular setting. No widgets.
"""

from __future__ import annotations

import os
from dataclasses import Field, dataclass, replace
from typing import Any

from engine import config as declared
from engine import paths
from engine.config import Config, about, convert, flag, takes
from engine.errors import UsageError, did_you_mean
from engine.types.parameters import About
from tui.conversation.session import ChatSession
from tui.settings import toml_file

SESSION = "this session"
RESET = ("default", "none")
"""Words that take a decision back."""
NOW = tuple(group for group, when in declared.HOLDS.items() if when == "the next answer")
"""Groups that hold from the next answer on; the others hold from the next start."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as it is now."""

    name: str
    """As it is typed: `top-p`."""
    value: str
    source: str
    """Who decided: empty for nobody."""
    help: str
    takes: str
    group: str


def find(name: str) -> Field[Any]:
    """A setting by the name that a person types.

    Raises:
        UsageError: with the names there are.
    """
    wanted = name.strip().lower().replace("-", "_")
    for setting in declared.settings():
        if wanted in (setting.name, *about(setting).aliases):
            return setting
    known = [row.name for row in rows(Config())]
    hint = did_you_mean(wanted.replace("_", "-"), known)
    raise UsageError(f"There is no setting {name}; there are {', '.join(known)}.{hint}")


def rows(config: Config, system: str | None = None) -> list[Row]:
    """All settings in order. `system` is the prompt of the chat at hand."""
    out: list[Row] = []
    for setting in declared.settings():
        value, source = getattr(config, setting.name), config.sources.get(setting.name, "")
        if setting.name == "system" and system is not None and system != value:
            value, source = system, "this chat"
        name = setting.name.replace("_", "-")
        out.append(Row(name, said(value), source, about(setting).help, takes(setting), about(setting).group))
    return out


def said(value: Any) -> str:
    """A value as it is typed."""
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def put(session: ChatSession, name: str, value: str, for_session: bool = False) -> str:
    """Set one value, here and in the file; the sentence that says so.

    Raises:
        UsageError: names the setting, the value and what is allowed. Nothing changes then.
    """
    setting = find(name)
    typed, value = setting.name.replace("_", "-"), value.strip()
    reset = value.lower() in RESET
    given = setting.default if reset else convert(setting, value, typed)
    now = about(setting).group in NOW
    if for_session and not now:
        return f"{typed} holds from the next start on, so it cannot be set for this session only."
    if now:
        decide(session, setting.name, given, None if reset else SESSION)
    word = "back to its default" if reset else _quoted(given)
    when = "from the next answer on" if now else "from the next start on"
    if for_session:
        return f"{typed} is {word} {when}, in this session only."
    file = paths.settings_file()
    try:
        toml_file.change(file, {(setting.name,): None if reset else _plain(given)})
    except toml_file.NotWritten as error:
        return f"{typed} is {word} in this session only: {error}" if now else str(error)
    if now:
        decide(session, setting.name, given, None if reset else str(file))
        session.start = _with(session.start, setting.name, given, None if reset else str(file))
    variable = declared.ENV_PREFIX + setting.name.upper()
    also = f" {variable} is set, and wins at the next start." if os.environ.get(variable) else ""
    return f"{typed} is {word} {when}, and kept in {file.name}.{also}"


def decide(session: ChatSession, name: str, value: Any, source: str | None) -> None:
    """Hold a value from the next answer on, decided by `source`; None for nobody."""
    session.config = _with(session.config, name, value, source)
    if name == "system":
        session.chat.system = value


def _with(config: Config, name: str, value: Any, source: str | None) -> Config:
    sources = {key: who for key, who in config.sources.items() if key != name}
    if source is not None:
        sources[name] = source
    return replace(config, **{name: value}, sources=sources)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _quoted(value: Any) -> str:
    return f"“{value}”" if isinstance(value, str) and (" " in value or not value) else said(value)


def _elsewhere(what: About) -> str:
    """Who else may decide a setting: presets, the checkpoint, and requests over HTTP by the names that they use."""
    apis: dict[tuple[str, ...], list[str]] = {}
    for api, names in what.apis.items():
        apis.setdefault(names, []).append(api)
    over_http = [f"{', '.join(where)}: {', '.join(f'`{name}`' for name in names)}" for names, where in apis.items()]
    parts = ["presets"] * what.preset + ["the checkpoint"] * what.recommended + over_http
    return "; ".join(parts) or "–"


def document() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Made from the declarations in `engine`. Each is an option of the command line, an entry of `config.toml`, a",
        "variable of the environment and a line of the settings screen (F8, or `/settings`). What a request over HTTP",
        "says wins over flags, which win over the environment, which wins over the file, which wins over what the",
        "checkpoint recommends in `generation_config.json`, where it samples. The same limits hold everywhere.",
        "",
        "| setting | takes | default | option | does | changed, it holds from | also in |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting in declared.settings():
        what = about(setting)
        cells = (
            *(
                f"`{setting.name}`",
                takes(setting),
                said(setting.default) or "empty",
                f"`{flag(setting)}`",
                what.whole_help,
            ),
            *(declared.HOLDS[what.group], _elsewhere(what)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "The variable of `top_p` is `DSPARK_TOP_P`, and so on. A wrong entry in the file is named at the start and",
        "left out; entries that the program does not know stay where they are. `/set NAME VALUE` writes the file,",
        "`/set session NAME VALUE` does not, `/set NAME default` takes a decision back.",
        "",
        "## Tables of the file",
        "",
        "```toml",
        "[presets.terse]          # /preset terse; /preset save NAME writes one",
        'system = "Answer in one sentence."',
        "temperature = 0.3",
        'drafter = "lookup"',
        "",
        "[keys]                   # ids stand in docs/keys.md",
        'view = "f12"',
        "",
        "[app]",
        'mouse = "on"             # on, wheel (selecting is the terminal\'s again), off',
        "thumbnails = true        # small pictures under a message that sent some; never without colours",
        "```",
    ]
    return "\n".join(lines) + "\n"

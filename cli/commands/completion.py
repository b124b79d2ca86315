"""`dspark-chat completion SHELL`: a script that completes this command, made from the parsers themselves."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cli.parser import parser as chat_parser
from cli.registry import COMMANDS
from engine import config as settings

NAME = "dspark-chat"
FILES = ("FILE", "DIR", "PATH", "FOLDER")
"""Metavars whose values are paths."""
INSTALL = {
    "bash": f'eval "$({NAME} completion bash)"                          # in ~/.bashrc',
    "zsh": f"{NAME} completion zsh > ~/.zfunc/_{NAME}      # a folder in $fpath, before compinit",
    "fish": f"{NAME} completion fish > ~/.config/fish/completions/{NAME}.fish",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or the words that may stand without one (no flags)."""

    flags: tuple[str, ...]
    help: str
    takes: bool
    words: tuple[str, ...] = ()
    """Values that are known."""
    files: bool = False
    """Values are paths."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(INSTALL))
    parser.epilog = "to install it:\n" + "\n".join(f"  {how}" for how in INSTALL.values())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> int:
    writers: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
    print(writers[args.shell](), end="")
    return 0


# What there is --------------------------------------------------------------------------------------------------------


def commands() -> dict[str, list[Option]]:
    """Options by subcommand; those of a chat under the empty name."""
    found = {"": list(_options(chat_parser()))}
    for command in COMMANDS:
        own = argparse.ArgumentParser(prog=command.name)
        import_module(command.module).add_arguments(own)
        found[command.name] = list(_options(own))
    return found


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._actions:  # argparse has no other way to ask
        words = tuple(str(word) for word in action.choices or ()) or _known(action.dest)
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        files = metavar in FILES or action.dest in ("files", "image") or action.dest.endswith(("_file", "_folder"))
        text = (action.help or "").replace("%%", "%").split("\n")[0]
        if text != argparse.SUPPRESS and (action.option_strings or words or files):
            yield Option(tuple(action.option_strings), text, action.nargs != 0, words, files)


def _known(dest: str) -> tuple[str, ...]:
    """Values of settings, models and themes."""
    if dest == "theme":
        import themes

        return tuple(themes.load().themes)
    name = dest.removeprefix("set_")
    if name in ("model", "target"):
        from engine.hub.catalog import catalog

        return tuple(card.id for card in catalog().cards)
    if name == "drafter":
        from engine.drafters import registry

        return registry.names()
    setting: Any = next((s for s in settings.settings() if s.name == name and dest != name), None)
    if setting is None or "bool" in str(setting.type):
        return ()
    return tuple(str(v) for v in settings.about(setting).choices) or settings.words(setting)


# The scripts ----------------------------------------------------------------------------------------------------------


def bash() -> str:
    """With `compgen`, so that it needs nothing that bash does not bring."""
    cases: list[str] = []
    for name, options in commands().items():
        flags = " ".join(flag for option in options for flag in option.flags)
        plain = [word for option in options if not option.flags for word in option.words]
        first = [*plain, *([c.name for c in COMMANDS] if not name else [])]
        cases.append(f"        {shlex.quote(name)})\n            flags={shlex.quote(flags)}")
        cases.append(f"            words={shlex.quote(' '.join(first))}\n            case $prev in")
        for option in options:
            if option.flags and option.takes:
                values = "files" if option.files else f"words {shlex.quote(' '.join(option.words))}"
                cases.append(f"                {'|'.join(option.flags)}) _dspark_chat_{values}; return ;;")
        cases.append("            esac ;;")
    names = " ".join(c.name for c in COMMANDS)
    return f"""# Completion of {NAME} for bash: {INSTALL["bash"].partition("#")[0].strip()}
_dspark_chat_words() {{ COMPREPLY=($(compgen -W "$1" -- "$cur")); }}
_dspark_chat_files() {{ compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); }}
_dspark_chat() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command="" flags="" words=""
    if [[ $COMP_CWORD -gt 1 && " {names} " == *" ${{COMP_WORDS[1]}} "* ]]; then command=${{COMP_WORDS[1]}}; fi
    case $command in
{chr(10).join(cases)}
    esac
    if [[ $cur == -* ]]; then _dspark_chat_words "$flags"
    elif [[ -n $words && ( -n $command || $COMP_CWORD -eq 1 ) ]]; then _dspark_chat_words "$words"
    else _dspark_chat_files; fi
}}
complete -F _dspark_chat {NAME}
"""


def zsh() -> str:
    """With `_arguments`."""
    found = commands()
    lines = [f"#compdef {NAME}", f"# Completion of {NAME} for zsh: {INSTALL['zsh'].partition('#')[0].strip()}", ""]
    for name, options in found.items():
        lines.append(f"_dspark_chat_{name or 'chat'}() {{\n    _arguments -s -S \\")
        lines += [f"        {spec} \\" for option in options for spec in _zsh_specs(option)]
        rest = "'1:command:_dspark_chat_commands' '*:prompt:_files'" if not name else "'*:file:_files'"
        lines += [f"        {rest if not any(not o.flags for o in options) else ''}".rstrip(" \\"), "}"]
    lines.append("_dspark_chat_commands() {\n    local -a commands=(")
    lines += [f"        {shlex.quote(f'{c.name}:{c.help}')}" for c in COMMANDS]
    lines += ["    )\n    _describe command commands", "}", "_dspark_chat() {", "    case $words[2] in"]
    for name in found:
        if name:
            lines.append(f"        {name}) shift words; (( CURRENT-- )); _dspark_chat_{name} ;;")
    lines += ["        *) _dspark_chat_chat ;;", "    esac", "}"]
    lines.append(
        'if [[ $funcstack[1] == "_dspark-chat" ]]; then _dspark_chat "$@"; else compdef _dspark_chat dspark-chat; fi'
    )
    return "\n".join(lines) + "\n"


def _zsh_specs(option: Option) -> Iterator[str]:
    values = f":({' '.join(option.words)})" if option.words else ":_files" if option.files else ": "
    if not option.flags:
        yield shlex.quote(f"*:{option.help[:40] or 'word'}{values}")
        return
    text = "".join(f"\\{c}" if c in "[]:\\" else c for c in option.help)
    for flag in option.flags:
        yield shlex.quote(f"*{flag}[{text}]" + (f":value{values}" if option.takes else ""))


def fish() -> str:
    """One line an option."""
    lines = [f"# Completion of {NAME} for fish: {INSTALL['fish']}"]
    for command in COMMANDS:
        lines.append(f"complete -c {NAME} -n __fish_use_subcommand -a {command.name} -d {_fish(command.help)}")
    for name, options in commands().items():
        when = f"'__fish_seen_subcommand_from {name}'" if name else "__fish_use_subcommand"
        for option in options:
            parts = [f"complete -c {NAME} -n {when}"]
            for flag in option.flags:
                parts.append(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}")
            parts += ["-r"] if option.takes and option.flags else []
            parts += ["-F"] if option.files else []
            parts += [f"-f -a {_fish(' '.join(option.words))}"] if option.words else []
            parts += [f"-d {_fish(option.help)}"] if option.help else []
            lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


__all__: Sequence[str] = ("add_arguments", "bash", "commands", "fish", "run", "zsh")

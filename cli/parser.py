"""Arguments of a chat: the engine's settings, made from their declarations, and what only the command line knows.

Imports no front end and no MLX, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from cli.registry import COMMANDS
from engine import __version__
from engine import config as settings
from engine.errors import did_you_mean

_EPILOG = """examples:
  dspark-chat                              chat in the terminal
  dspark-chat "why is the sky blue?"       one answer on stdout
  git diff | dspark-chat "explain this"    standard input first, then the words
  dspark-chat --json --seed 1 "a haiku"    one JSON object
"""


class Parser(argparse.ArgumentParser):
    """Takes options as they are spelt, and names the nearest one to a misspelling."""

    def __init__(self, **how: Any) -> None:
        super().__init__(allow_abbrev=False, **how)

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ") if message.startswith("unrecognized") else ""
        names = [word.partition("=")[0] for word in unknown.split() if word.startswith("--")]
        hints = "".join(did_you_mean(name, self._option_string_actions) for name in names)
        super().error(f"{message}.{hints}" if hints else message)


def parser() -> Parser:
    """The parser of `dspark-chat [options] [prompt]`."""
    commands = "\n".join(f"  {command.name:<11}{command.help}" for command in COMMANDS)
    result = Parser(
        prog="dspark-chat",
        usage="dspark-chat [options] [prompt ...]\n       dspark-chat COMMAND [options]",
        description="Chat with a local language model that decodes speculatively.",
        epilog=f"commands (each has its own --help):\n{commands}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("prompt", nargs="*", help="answer this and end; without it, and on a terminal, chat")
    result.add_argument("--version", action="version", version=f"dspark-chat {__version__}")
    add_settings(result)
    output = result.add_argument_group("output of a single answer")
    shape = output.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one object: text, provenance, counts")
    shape.add_argument("--jsonl", action="store_true", help="one object for each event of the engine")
    output.add_argument("--no-stream", action="store_true", help="print the answer when it is complete")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colours by provenance")
    output.add_argument(
        "-i", "--image", action="append", default=[], metavar="FILE", help="show a picture to the model"
    )
    output.add_argument("-q", "--quiet", action="store_true", help="no progress and no notes on stderr")
    output.add_argument("-v", "--verbose", action="store_true", help="progress and statistics on stderr")
    screen = result.add_argument_group("terminal app")
    screen.add_argument("--plain", action="store_true", help="line by line, without full-screen widgets")
    screen.add_argument("--theme", metavar="NAME", help="colours of the app")
    screen.add_argument("-c", "--continue", dest="continue_last", action="store_true", help="go on with the last chat")
    screen.add_argument("--resume", metavar="ID", help="go on with this chat")
    return result


def add_settings(to: argparse.ArgumentParser, *names: str) -> None:
    """Add the engine's settings (all, or these) as options; what is not given is absent from the namespace."""
    groups: dict[str, Any] = {}
    for setting in settings.settings():
        if names and setting.name not in names:
            continue
        about = settings.about(setting)
        if about.group not in groups:
            groups[about.group] = to.add_argument_group(about.group)
        options: dict[str, Any] = {
            "dest": f"set_{setting.name}",
            "default": argparse.SUPPRESS,
            "help": about.whole_help,
        }
        if "bool" in str(setting.type):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = about.metavar
            if isinstance(setting.default, tuple):
                options["action"] = "append"
            elif setting.default not in ("", None):
                options["help"] += f" (default {setting.default})"
        groups[about.group].add_argument(*settings.flags(setting), **options)


def read_settings(args: argparse.Namespace) -> settings.Config:
    """The settings under these arguments.

    Raises:
        UsageError: with one sentence.
    """
    given = {name.removeprefix("set_"): value for name, value in vars(args).items() if name.startswith("set_")}
    return settings.read(given)

"""From arguments to an exit code: 0 done, 1 failed, 2 used wrongly, 130 interrupted. Errors become one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from cli.parser import Parser, parser, read_settings
from cli.registry import COMMANDS, Command
from engine.errors import DsparkError, UsageError, did_you_mean

ENV_TRACE = "DSPARK_TRACEBACK"


def main(argv: Sequence[str]) -> int:
    """Run the command line; never raises for what a person did or a machine lacks."""
    try:
        return _guarded(list(argv))
    except DsparkError as error:
        return complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has what it wanted; Python must not complain about it again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # the outermost edge: a person gets a sentence, a developer asks for more
        if os.environ.get(ENV_TRACE):
            raise
        what = " ".join(str(error).split()) or "no further detail"
        return complain(
            f"Something unforeseen went wrong ({type(error).__name__}: {what}). {ENV_TRACE}=1 shows where.", 1
        )


def complain(sentence: str, code: int) -> int:
    from engine.chat.terminal_safe import clean

    print(f"dspark-chat: {clean(sentence)}", file=sys.stderr)
    return code


def _guarded(argv: list[str]) -> int:
    command = next((c for c in COMMANDS if argv[:1] == [c.name]), None)
    try:
        return _command(command, argv[1:]) if command else _chat(argv)
    except SystemExit as end:  # argparse ends the process by itself, after printing
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2


def _command(command: Command, argv: list[str]) -> int:
    module = import_module(command.module)
    arguments = Parser(
        prog=f"dspark-chat {command.name}",
        description=command.help[:1].upper() + command.help[1:] + ".",
    )
    module.add_arguments(arguments)
    return int(module.run(arguments.parse_args(argv)) or 0)


def _refuse_mistyped(argv: list[str]) -> None:
    """A word by itself that is nearly a command is no question, and must not wait for a model to find that out.

    Raises:
        UsageError: with the nearest command.
    """
    alone = len(argv) == 1 or (len(argv) > 1 and argv[1].startswith("-"))
    if alone and (hint := did_you_mean(argv[0], [c.name for c in COMMANDS], cutoff=0.75)):
        raise UsageError(f"There is no command {argv[0]}.{hint} As a question it is written: dspark-chat -- {argv[0]}")


def _chat(argv: list[str]) -> int:
    _refuse_mistyped(argv)
    args = parser().parse_args(argv)
    config = read_settings(args)
    if not args.quiet:
        for note in config.notes:
            complain(note, 0)
    from cli.commands.answer import is_one_shot

    if is_one_shot(args):
        from cli.commands.answer import run

        if args.resume or args.continue_last:
            raise UsageError(
                "Chats go on in the app: leave out the prompt, or -c and --resume for an answer by itself."
            )
        return run(args, config)
    if not sys.stdout.isatty():
        raise UsageError("There is no prompt, and standard output is not a terminal to chat in.")
    if not args.quiet and sys.stdin.isatty():
        from engine.diagnostics.self_test.offer import offer

        offered = offer()
        if offered and args.plain:
            complain(offered, 0)
        elif offered:  # the app shows notes when it has drawn itself
            config = replace(config, notes=(*config.notes, offered))
    from tui.options import Options

    options = Options(config, theme=args.theme, resume=args.resume, continue_last=args.continue_last)
    if args.plain or os.environ.get("TERM", "") in ("", "dumb"):
        from tui.plain.chat import run as chat
    else:
        from tui.app import run as chat
    return chat(options)

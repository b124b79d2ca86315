"""The subcommands. One line adds one; its module is imported only when it is called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """`module` defines `add_arguments(parser)` and `run(args) -> int`."""

    name: str
    module: str
    help: str


COMMANDS: tuple[Command, ...] = (
    Command("models", "cli.commands.models", "list the models that are on this machine or known by name"),
    Command("doctor", "cli.commands.doctor", "describe this machine and what the engine makes of it"),
    Command("cache", "cli.commands.cache", "list, measure or empty what the prefix cache keeps on disk"),
    Command("calibrate", "cli.commands.calibrate", "measure this machine for a model and its drafters"),
    Command("bench", "cli.commands.bench", "compare ways of decoding the same prompts, in turn"),
    Command("race", "cli.commands.race", "the same prompt through two to four drafters, with a checked verdict"),
    Command("verify", "cli.commands.verify", "certify that drafters say exactly what plain decoding says"),
    Command("simulate", "cli.commands.simulate", "predict draft length and speed-up from another machine's curves"),
    Command(
        "import",
        "cli.commands.import_chats",
        "read chats from Markdown, JSON or text files, or from exports of our own",
    ),
    Command("completion", "cli.commands.completion", "print the completion of this command for bash, zsh or fish"),
    Command("paths", "cli.commands.paths", "print where settings, chats, models and logs are kept"),
    Command("serve", "cli.commands.serve", "serve the OpenAI and Anthropic APIs on this machine"),
    Command("claude", "cli.commands.agents", "start Claude Code on the running server"),
    Command("codex", "cli.commands.agents", "start Codex on the running server"),
    Command("train", "cli.commands.train", "make a drafter for a model, in stages that may be interrupted"),
    Command("probe", "cli.commands.probe", "check whether a drafter is read the way it was trained"),
)

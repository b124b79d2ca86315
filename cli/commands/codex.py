"""`dspark-chat codex`: Codex on the running server."""

from __future__ import annotations

import argparse

from cli.commands.agents import add_place, codex_options, find, start
from cli.commands.serve import ENV_KEY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "codex")


def run(args: argparse.Namespace) -> int:
    place = find(args.url, args.api_key)
    return start(args, "codex", codex_options(place), {ENV_KEY: place.key})

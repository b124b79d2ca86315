"""`dspark-chat claude`: Claude Code on the running server."""

from __future__ import annotations

import argparse

from cli.commands.agents import add_place, claude_environment, find, start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "claude")


def run(args: argparse.Namespace) -> int:
    return start(args, "claude", [], claude_environment(find(args.url, args.api_key)))

"""`dspark-chat paths`: where settings, chats, models and logs are kept."""

from __future__ import annotations

import argparse
import json

from engine import paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one object")


def run(args: argparse.Namespace) -> int:
    places = paths.all_paths()
    if args.json:
        print(json.dumps({name: str(path) for name, path in places.items()}, indent=2))
        return 0
    width = max(len(name) for name in places)
    for name, path in places.items():
        print(f"{name:<{width}}  {path}{'' if path.exists() else '  (not there yet)'}")
    return 0

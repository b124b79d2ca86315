"""`dspark-chat models`: what is on this machine and what is known by name; fetch one, check one, say where one is."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from cli.parser import add_settings, read_settings
from cli.progress import Reporter
from engine import hub
from engine.chat.terminal_safe import one_line
from engine.errors import DsparkError, human_bytes
from engine.hub.catalog import Card, catalog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "fetch", "check", "path"), default="list")
    parser.add_argument("name", nargs="?", default="", help="card, owner/name or folder")
    parser.add_argument("--json", action="store_true", help="as one object")
    add_settings(parser, "folders", "trust_remote_code")


def run(args: argparse.Namespace) -> int:
    config = read_settings(args)
    hub.trust_remote_code(config.trust_remote_code)
    match args.action:
        case "fetch":
            return _fetch(args.name, config.folders)
        case "check":
            return _check(args.name, config.folders)
        case "path":
            print(hub.ensure(args.name, folders=config.folders, fetch=False).path)
            return 0
        case _:
            return _list(args.json, config.folders)


def _fetch(name: str, folders: tuple[str, ...]) -> int:
    reporter = Reporter(sys.stderr, verbose=True)
    found = hub.ensure(name, folders=folders, on_progress=reporter.progress)
    reporter.done()
    print(found.path)
    return 0


def _check(name: str, folders: tuple[str, ...]) -> int:
    """Exit 1 when any of the models cannot be loaded as it lies there."""
    names = [name] if name else [found.name for found in hub.installed(folders)]
    bad = 0
    for each in names:
        try:
            found = hub.ensure(each, folders=folders, fetch=False)
        except DsparkError as error:
            if name:
                raise
            bad += 1
            print(f"{one_line(each)}: {one_line(str(error))}")
        else:
            print(f"{one_line(each)}: complete ({human_bytes(found.size)})")
    return 1 if bad else 0


def _list(as_json: bool, folders: tuple[str, ...]) -> int:
    here = list(hub.installed(folders))
    if as_json:
        print(
            json.dumps({"installed": [_found(f) for f in here], "known": [_card(c) for c in catalog().cards]}, indent=2)
        )
        return 0
    print("On this machine:")
    for found in here:
        state = "" if found.installed else f"  incomplete: {len(found.missing)} file(s) missing"
        kind = "" if found.kind == "model" else f"  {found.kind}"
        print(f"  {one_line(found.name):<58} {human_bytes(found.size):>9}  {found.place}{kind}{state}")
    if not here:
        print("  none yet; `dspark-chat` fetches the embedded one (93 MB) when it starts")
    print("\nKnown by name (any other is written owner/name):")
    for card in catalog().cards:
        drafters = ", ".join(card.drafters) or "lookup"
        print(f"  {card.id:<34} {drafters:<16} {card.target.removeprefix('wheel:')}")
    for file, reason in catalog().broken:
        print(f"\nNot read: {one_line(file)}: {one_line(reason)}")
    return 0


def _found(found: hub.Found) -> dict[str, Any]:
    return {
        "name": found.name,
        "place": found.place,
        "path": str(found.path),
        "kind": found.kind,
        "bytes": found.size,
        "missing": list(found.missing),
        "card": found.card.id if found.card else None,
    }


def _card(card: Card) -> dict[str, Any]:
    return {
        "id": card.id,
        "title": card.title,
        "target": card.target,
        "aliases": list(card.aliases),
        "drafters": dict(card.drafters),
        "mode": card.mode,
    }

"""`dspark-chat doctor`: describe this machine and this installation, or test the engine on it. Exit 1 when something
needs attention."""

from __future__ import annotations

import argparse
import json
import sys

from cli.parser import add_settings, read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one object")
    parser.add_argument("--models", action="store_true", help="also read the headers of every installed model")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="check in about a minute, without a download, that models compute what they should on this backend",
    )
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    if args.self_test:
        return _self_test(args.json)
    from engine import __version__
    from engine.diagnostics import doctor

    config = read_settings(args)
    facts = doctor.examine(config.folders, models=args.models)
    good = all(fact.ok for fact in facts)
    if args.json:
        settings = {"values": config.as_dict(), "sources": dict(config.sources), "notes": list(config.notes)}
        whole = {"version": __version__, "ok": good, "facts": doctor.as_dicts(facts), "settings": settings}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
        return 0 if good else 1
    print(doctor.report(facts, config, __version__))
    return 0 if good else 1


def _self_test(as_json: bool) -> int:
    from dspark_chat import __version__
    from engine.diagnostics.self_test import offer
    from engine.diagnostics.self_test.run import self_test

    live = sys.stderr.isatty()

    def told(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r\x1b[2K{done + 1} of {total}: {what}")
        sys.stderr.flush()

    offer.taken()
    try:
        found = self_test(__version__, told if live else None)
    finally:
        if live:
            sys.stderr.write("\r\x1b[2K")
    print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if as_json else found.text())
    return 0 if found.ok else 1

"""`dspark-chat doctor`: describe this machine and this installation. Exit 1 when something needs attention."""

from __future__ import annotations

import argparse
import json

from cli.parser import add_settings, read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one object")
    parser.add_argument("--models", action="store_true", help="also read the headers of every installed model")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
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

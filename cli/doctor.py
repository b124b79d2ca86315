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
    from dspark_chat import __version__
    from engine import doctor
    from engine.sanitize import one_line

    config = read_settings(args)
    facts = doctor.examine(config.folders, models=args.models)
    good = all(fact.ok for fact in facts)
    if args.json:
        settings = {"values": config.as_dict(), "sources": dict(config.sources), "notes": list(config.notes)}
        whole = {"version": __version__, "ok": good, "facts": doctor.as_dicts(facts), "settings": settings}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
        return 0 if good else 1
    print(f"dspark-chat {__version__}")
    group = ""
    for fact in facts:
        if fact.group != group:
            group = fact.group
            print(f"\n{group}")
        mark = " " if fact.ok else "!"
        print(f" {mark} {one_line(fact.name):<22} {one_line(fact.value)}")
        if fact.advice:
            print(f"   {'':<22} → {one_line(fact.advice)}")
    print("\nsettings")
    for name, source in config.sources.items():
        print(f"   {name:<22} {one_line(str(config.as_dict()[name]))}  ({one_line(source)})")
    for note in config.notes:
        print(f" ! {one_line(note)}")
    if not config.sources and not config.notes:
        print("   all as built in")
    return 0 if good else 1

"""`dspark-chat cache`: what the prefix cache keeps on disk; list it, measure it, empty it."""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict

from engine import backend as backend  # before MLX, see its docstring
from engine.errors import human_bytes
from engine.prefix_cache.disk import DiskTier, default_folder
from engine.prefix_cache.disk_file import Segment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "size", "clear"), default="list")
    parser.add_argument("--json", action="store_true", help="as one object")


def run(args: argparse.Namespace) -> int:
    tier = DiskTier(default_folder())
    if args.action == "clear":
        freed = tier.clear()
        print(json.dumps({"freed": freed}) if args.json else f"Freed {human_bytes(freed)}.")
        return 0
    by_model: defaultdict[str, list[Segment]] = defaultdict(list)
    for segment in tier.index().values():
        by_model[segment.label or segment.folder].append(segment)
    total = sum(s.nbytes for held in by_model.values() for s in held)
    if args.action == "size":
        print(json.dumps({"bytes": total}) if args.json else human_bytes(total))
        return 0
    rows = [
        {
            "model": model,
            "prefixes": len(held),
            "longest": max(s.end for s in held),
            "bytes": sum(s.nbytes for s in held),
            "used": max(s.used for s in held),
        }
        for model, held in sorted(by_model.items())
    ]
    if args.json:
        print(json.dumps({"folder": str(tier.folder), "bytes": total, "models": rows}))
        return 0
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(row["used"])))
        print(
            f"{row['model']}: {row['prefixes']} prefixes, up to {row['longest']} tokens, "
            f"{human_bytes(int(row['bytes']))}, last used {when}"
        )
    print(f"{human_bytes(total)} in {tier.folder}" if rows else f"Nothing is kept in {tier.folder}.")
    return 0

"""`dspark-chat simulate`: what draft length and speed-up a machine's published curves promise. Loads no model."""

from __future__ import annotations

import argparse
import json

from cli.common import table
from engine.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "machine",
        nargs="?",
        default="m4pro",
        help="a machine that ships (m4pro), or a .toml of widths and milliseconds",
    )
    parser.add_argument("--pair", metavar="NAME", help="only this one, with every draft length")
    parser.add_argument(
        "-a", "--acceptance", default="0.7", metavar="P", help="0.7, or one number a position: 0.9,0.8,0.7"
    )
    parser.add_argument("--depth", type=int, default=0, metavar="N", help="context length")
    parser.add_argument("--json", action="store_true", help="as one object")


def run(args: argparse.Namespace) -> int:
    from engine.calibration.simulate import machine, predict, profile

    chances = profile(args.acceptance)
    pairs = machine(args.machine)
    if args.pair:
        pairs = [p for p in pairs if p.name == args.pair]
        if not pairs:
            names = ", ".join(p.name for p in machine(args.machine))
            raise UsageError(f"No pair '{args.pair}' in {args.machine}; there are: {names}.")
    found = [predict(pair, chances, args.depth) for pair in pairs]
    if args.json:
        print(json.dumps([_as_dict(p) for p in found], indent=2))
        return 0
    rows = [
        (
            p.pair.name,
            p.cap,
            "" if p.pair.best_cap is None else p.pair.best_cap,
            f"{p.tokens_per_s:.1f}",
            f"{p.plain:.1f}" if p.plain else "unknown",
            f"{p.speedup:.2f}x" if p.plain else "",
            p.knee or "none",
        )
        for p in found
    ]
    print(table(("pair", "cap", "published", "tok/s", "plain", "speed-up", "knee"), rows))
    if args.pair:
        print()
        print(table(("cap", "tok/s"), [(c, f"{r:.1f}") for c, r in found[0].table]))
    return 0


def _as_dict(p: object) -> dict[str, object]:
    from engine.calibration.simulate import Prediction

    assert isinstance(p, Prediction)
    return {
        "pair": p.pair.name,
        "cap": p.cap,
        "published_cap": p.pair.best_cap,
        "tokens_per_s": round(p.tokens_per_s, 2),
        "plain": round(p.plain, 2),
        "speedup": round(p.speedup, 3),
        "knee": p.knee,
        "table": {str(c): round(r, 2) for c, r in p.table},
    }

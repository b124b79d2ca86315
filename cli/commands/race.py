"""`dspark-chat race`: the same prompt through two to four drafters, and whether they said the same."""

from __future__ import annotations

import argparse
import json

from cli.common import add_common, encode, opened, table
from engine.chat.terminal_safe import clean
from engine.drafters.registry import example

BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="*", help="what to ask; a built-in question when there is none")
    parser.add_argument("--arms", metavar="A,B", help=f"two to four drafters, e.g. {example()}")
    parser.add_argument("--tokens", type=int, default=96, metavar="N", help="tokens an answer (96)")
    parser.add_argument("--text", action="store_true", help="also print what the first arm said")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    from engine.calibration.calibrator import QUESTION
    from engine.diagnostics.race import MOST, race
    from engine.types import Request

    with opened(args) as (engine, meter):
        names = args.arms.split(",") if args.arms else list(engine.chains)[:MOST]
        prompt = encode(engine, [" ".join(args.prompt) or QUESTION])[0]
        result = race(engine, Request(tuple(prompt), max_tokens=args.tokens), names, progress=meter)
        meter.done()
        if args.json:
            arms = [
                {
                    "label": arm.label,
                    "drafter": arm.drafter,
                    "tokens": len(arm.tokens),
                    "ms": round(arm.ms, 1),
                    "tokens_per_s": round(arm.tokens_per_s, 3),
                    "speedup": round(result.speedup(arm), 3),
                    "rounds": len(arm.rounds),
                    "verdict": str(arm.verdict) if arm.verdict else "reference",
                }
                for arm in result.arms
            ]
            print(json.dumps({"verdict": result.banner, "ok": result.ok, "note": result.note, "arms": arms}, indent=2))
            return 0 if result.ok else 1
        rows = [
            (
                arm.label,
                f"{arm.tokens_per_s:.1f}",
                f"{result.speedup(arm):.2f}x",
                f"{arm.ms / 1000:.2f} s",
                len(arm.rounds),
                "#" * max(1, round(BAR * arm.ms / max(1e-9, result.ms))),
            )
            for arm in result.arms
        ]
        print(table(("arm", "tok/s", "speed-up", "time", "rounds", "clock"), rows))
        print(result.banner)
        if result.note:
            print(f"note: {result.note}")
        if args.text:
            print()
            print(clean(result.arms[0].text))
        return 0 if result.ok else 1

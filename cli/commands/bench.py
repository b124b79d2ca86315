"""`dspark-chat bench`: several ways of decoding the same prompts, in turn, with their spread."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.diagnostics.benchmark import Row

from cli.common import add_common, add_prompts, encode, opened, read_prompts, table
from engine.drafters.registry import example


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_prompts(parser)
    parser.add_argument("--modes", metavar="A,B", help=f"drafters to compare, e.g. {example()} (all loaded)")
    parser.add_argument("--trials", type=int, default=3, metavar="N", help="turns of every mode and prompt (3)")
    parser.add_argument("--tokens", type=int, default=96, metavar="N", help="tokens an answer (96)")
    parser.add_argument("--no-stop", action="store_true", help="go on after the end of an answer")
    add_common(parser)


def _as_table(rows: Sequence[Row], *, by_cpu: bool) -> str:
    """`by_cpu`: with the ratio by processor time, which on the CPU backend says what an idle machine would show."""
    cells = [
        (
            row.label,
            row.tokens_per_s,
            row.ratio,
            *([row.cpu_ratio] if by_cpu else []),
            f"{row.per_round:.2f}",
            f"{100 * row.acceptance:.0f} %" if row.draft_rounds else "-",
            f"{100 * row.lookup_acceptance:.0f} %" if row.lookup_rounds else "-",
            f"{100 * row.host_share:.1f} %",
            row.identical,
        )
        for row in rows
    ]
    extra = ["by cpu"] if by_cpu else []
    return table(("mode", "tok/s", "vs plain", *extra, "tok/round", "draft", "lookup", "host", "checked"), cells)


def run(args: argparse.Namespace) -> int:
    from engine import backend
    from engine.calibration.calibrator import load_per_core
    from engine.diagnostics.benchmark import bench
    from engine.types import Request

    prompts = read_prompts(args)
    busy, on_cpu = load_per_core(), backend.is_cpu()
    with opened(args) as (engine, meter):
        modes = args.modes.split(",") if args.modes else list(engine.chains)
        stop_ids = frozenset[int]() if args.no_stop else None
        rows = bench(
            engine,
            encode(engine, prompts),
            modes,
            trials=args.trials,
            max_tokens=args.tokens,
            request=Request((0,), stop_ids=stop_ids),
            progress=meter,
        )
        meter.done()
        whole = {
            "model": engine.spec.name,
            "prompts": len(prompts),
            "trials": args.trials,
            "tokens": args.tokens,
            "load_per_core": round(busy, 2),
            "rows": [row.as_dict() for row in rows],
        }
        if args.json:
            print(json.dumps(whole, indent=2))
        else:
            print(_as_table(rows, by_cpu=on_cpu))
            print(
                f"{engine.spec.name}: {len(prompts)} prompts × {args.trials} turns, up to {args.tokens} tokens; "
                f"medians over turns ± half the middle half; load {busy:.1f} a core"
            )
        return 1 if any("DIFFER" in row.identical for row in rows) else 0

"""`dspark-chat calibrate`: measure this machine for a model and its drafters, and say what follows."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from cli.common import add_common, opened, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="measure again what is known")
    parser.add_argument("--budget", type=float, default=10.0, metavar="S", help="seconds to spend, about (10)")
    parser.add_argument("--show", action="store_true", help="only show what is known")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    from engine.calibration.roofline import roofline

    with opened(args) as (engine, meter):
        calibrator = engine.calibrator
        if not args.show:
            calibrator.measure(force=args.force, budget_s=args.budget, progress=meter)
        meter.done()
        views = {name: calibrator.view(name) for name in (*calibrator.calibrations,)}
        roof = None if args.show or not views else engine.run_exclusive(lambda: roofline(engine.spec, views))
        if args.json:
            whole = {
                "model": engine.spec.name,
                "drafters": {name: asdict(v) for name, v in views.items()},
                "roofline": asdict(roof) if roof else None,
                "refused": {n: dict(c.refused) for n, c in calibrator.calibrations.items() if c.refused},
                "notes": calibrator.store.notes,
            }
            print(json.dumps(whole, indent=2))
            return 0 if views else 1
        if not views:
            print(f"{engine.spec.name} has not been measured on this machine; run: dspark-chat calibrate")
            return 1
        for name, view in views.items():
            print(f"{engine.spec.name} with {name}, measured {view.date}{' (stale)' if view.stale else ''}")
            print(table(("width", *(str(w) for w, _ in view.curve)), [("ms", *(f"{ms:.1f}" for _, ms in view.curve))]))
            if name != "lookup":
                print(
                    table(("cap", *(str(c) for c, _ in view.draft)), [("ms", *(f"{ms:.1f}" for _, ms in view.draft))])
                )
                print(
                    f"acceptance at the first position {view.acceptance:.2f} · cap {view.cap} · "
                    f"predicted {view.predicted:.1f} tok/s, plain {view.plain:.1f} ({view.speedup:.2f}x)"
                )
            print(f"knee {view.knee or 'none'} · spread ±{100 * view.spread:.0f} %")
            if view.reason:
                print(f"note: {view.reason}")
            print()
        if roof:
            print(roof)
        for note in calibrator.store.notes:
            print(f"note: {note}")
    return 0

"""Is the chosen draft length the right one? Derived and adaptive against a sweep of fixed caps, in one run.

    python benchmarks/calibration.py [--model M] [--drafter D] [--chain lookup] [--caps 0,1,2,4,8,16,32]

Prints one JSON line and a table. Three texts: real answers; random tokens, forced on the model, on which nothing can be
guessed; and random tokens followed by text that repeats itself, on which a parked drafter must wake up again. Modes
take turns within each prompt, and ratios are taken within the turn.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from engine import backend  # before MLX, see its docstring

# isort: split
from speed import CHAT, COPY, Forced

from engine.calibration.calibrator import load_per_core
from engine.diagnostics.benchmark import Row, bench
from engine.engine import Engine
from engine.load import load
from engine.types import Request


def run(engine: Engine, args: argparse.Namespace) -> dict[str, list[Row]]:
    caps = [int(c) for c in args.caps.split(",")]
    fixed = [f"{args.chain}:{c}" for c in caps if c]
    chosen = [f"{args.chain}:derived", f"{args.chain}:auto"]
    out: dict[str, list[Row]] = {}

    def ask(text: str) -> list[int]:
        return list(engine.format.render([{"role": "user", "content": text}]))

    def tell(what: str, done: float) -> None:
        print(f"\r{100 * done:3.0f} % {what}      ", end="", file=sys.stderr)

    if "real" in args.texts:
        prompts = [ask(text) for text in (*CHAT[: args.prompts], *COPY.values())]
        out["real"] = bench(
            engine, prompts, [*fixed, *chosen], trials=args.turns, max_tokens=args.tokens, progress=tell
        )
    dice = random.Random(7)
    noise = [dice.randrange(1000, engine.spec.vocab_size) for _ in range(args.tokens + 8)]
    if "random" in args.texts:
        out["random"] = bench(
            engine,
            [ask("Say anything.")],
            [*fixed[-1:], *chosen],
            trials=args.turns,
            make=lambda ids: forced(ids, noise, args.tokens),
            progress=tell,
        )
    if "switch" in args.texts:
        script = noise[: args.tokens // 2] + (noise[:24] * 20)[: 2 * args.tokens]
        out["switch"] = bench(
            engine,
            [ask("Say anything.")],
            chosen,
            trials=args.turns,
            make=lambda ids: forced(ids, script, len(script)),
            progress=tell,
        )
    return out


def forced(ids: Sequence[int], script: Sequence[int], tokens: int) -> Request:
    return Request(tuple(ids), max_tokens=tokens, stop_ids=frozenset(), processors=(Forced(script),))


def verdict(rows: list[Row]) -> dict[str, float]:
    """Derived and adaptive as shares of the best fixed cap, plain included; by processor time on the CPU backend, where
    other processes disturb it least."""
    by = {row.mode: (row.cpu_ratio if backend.is_cpu() else row.ratio).median for row in rows}
    fixed = {m: r for m, r in by.items() if not m.endswith(("derived", "auto"))}
    best = max(fixed.values())
    return {
        "best_fixed": best,
        **{m.rpartition(":")[2]: by[m] / best for m in by if m.endswith(("derived", "auto"))},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="the embedded model by default")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--chain", default="lookup", help="what drafts")
    parser.add_argument("--caps", default="0,1,2,4,8,16,32")
    parser.add_argument("--texts", default="real,random,switch")
    parser.add_argument("--prompts", type=int, default=2, help="chat prompts beside the copying ones (2)")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    busy = load_per_core()
    with load(args.model, drafter=args.drafter) as engine:
        engine.calibrator.measure(budget_s=15)
        found = run(engine, args)
        view = engine.calibrator.view(args.chain)
    report = backend.report()
    whole = {
        "model": engine.spec.name,
        "chain": args.chain,
        "blas": f"{report.blas} x{report.threads}",
        "load_per_core": [round(busy, 2), round(load_per_core(), 2)],
        "curve": view.curve,
        "derived_cap": view.cap,
        "texts": {
            name: {"verdict": verdict(rows), "rows": [row.as_dict() for row in rows]} for name, rows in found.items()
        },
    }
    print(file=sys.stderr)
    print(json.dumps(whole))
    for name, rows in found.items():
        print(f"\n{name}")
        for row in rows:
            print(
                f"  {row.mode:<18}{row.tokens_per_s!s:>14} tok/s   {row.ratio!s:>14} x plain   "
                f"{row.cpu_ratio!s:>14} by cpu   {row.per_round:5.2f} a round   {row.identical}"
            )
        print("  " + ", ".join(f"{k} {v:.3f}" for k, v in verdict(rows).items()))


if __name__ == "__main__":
    main()

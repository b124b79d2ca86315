"""This engine and mlx-dspark on the same pairs of target and drafter, in one run, prompt by prompt in turn.

    benchmarks/peer.py --peer-python /path/to/venv/bin/python [--folder tests/golden] [--trials 3]

mlx-dspark is somebody else's program and lives in an environment of its own (pip install mlx-dspark==0.20.3). Both
sides get the same BLAS library, float32, whole blocks, no lookup, no quantisation, greedy. Tokens beyond the budget,
which mlx-dspark returns, are not counted. Processor time is of whole calls, reading the prompt included, on both sides.
One JSON line, then a table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from engine import backend  # loads the BLAS, so it comes before anything that imports MLX

PAIRS = ("dspark-qwen3", "dspark-speculators", "dflash-deepspec", "dflash-zlab", "dflash-zlab-swa", "dflash2")
"""Golden drafters that mlx-dspark can load."""
Decode = Callable[[list[int], int], dict[str, Any]]


def ours(target_folder: Path, drafter_folder: Path) -> Decode:
    """This engine's loop, on a thread set up as its own would be."""
    backend.compute_thread()
    from engine.calibration.controlled_run import Run
    from engine.decoding.draft_length.policy import Full
    from engine.decoding.loop import Loop
    from engine.drafters.chain import Chain
    from engine.drafters.load import load_drafter
    from engine.targets.load import load_target
    from engine.types import Request

    loaded = load_target(target_folder)
    drafter = load_drafter(drafter_folder, loaded.target, bits=0)

    def decode(prompt: list[int], tokens: int) -> dict[str, Any]:
        run = Run(
            Loop(loaded.target), loaded.tokenizer, Chain("x", (drafter,)), Request(prompt, max_tokens=tokens), Full()
        )
        run.finish()
        rounds = run.rounds[1:]
        return {
            "tokens": list(run.tokens),
            "rounds": len(rounds),
            "ms": run.wall_ms,
        }

    return decode


def peers(target_folder: Path, drafter_folder: Path) -> Decode:
    """mlx-dspark's own generate functions, as its command line would call them."""
    from mlx_dspark.generate import dflash_generate, speculative_generate  # pyright: ignore[reportMissingImports]
    from mlx_dspark.load import load_dflash, load_drafter, load_target  # pyright: ignore[reportMissingImports]

    config = json.loads((drafter_folder / "config.json").read_text())
    flash = any(a.startswith("DFlash") for a in config["architectures"])
    target, tokenizer = load_target(str(target_folder), require_tap=True)
    drafter, _ = (load_dflash if flash else load_drafter)(str(drafter_folder), quantize=False)
    generate: Any = dflash_generate if flash else speculative_generate

    def decode(prompt: list[int], tokens: int) -> dict[str, Any]:
        result = generate(
            target,
            tokenizer,
            drafter,
            prompt_ids=prompt,
            max_new_tokens=tokens,
            max_draft_tokens=None,
            lookup_drafts=False,
            temperature=0.0,
        )
        return {
            "tokens": list(result.token_ids)[:tokens],
            "rounds": len(result.accept_lengths),
            "ms": result.decode_seconds * 1e3,
        }

    return decode


def work(side: str, folder: Path) -> int:
    """Answer {pair, prompt, tokens} lines on stdin until it closes."""
    make = ours if side == "ours" else peers
    loaded: dict[str, Decode] = {}
    for line in sys.stdin:
        job = json.loads(line)
        pair = job["pair"]
        try:
            if pair not in loaded:
                loaded[pair] = make(folder / "targets" / job["target"], folder / "drafters" / pair)
            began = time.process_time()
            answer = loaded[pair](job["prompt"], job["tokens"])
            answer["cpu_ms"] = (time.process_time() - began) * 1e3
        except Exception as error:  # noqa: BLE001  (the other program's failures are results)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print("\x1e" + json.dumps({**answer, "blas": backend.BLAS.kind}), flush=True)
    return 0


class Worker:
    """One side in a process of its own."""

    def __init__(self, python: str, side: str, folder: Path) -> None:
        environment = {**os.environ, "DSPARK_BLAS": backend.BLAS.path or "stock", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [python, __file__, "--worker", side, "--folder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ask(self, **job: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("\x1e"):
                return json.loads(line[1:])
        raise SystemExit(f"a worker ended with {self.process.wait()}; run it by hand to see why")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(pair: str, folder: Path, mine: Worker, theirs: Worker, trials: int, tokens: int) -> dict[str, Any]:
    """Medians of one pair; the two sides take turns prompt by prompt, after one unmeasured warm-up each."""
    golden = json.loads((folder / "drafters" / pair / "golden" / "expected.json").read_text())
    job = {"pair": pair, "target": golden["target"], "tokens": tokens}
    for side in (mine, theirs):
        answer = side.ask(**job, prompt=golden["prompts"][0])
        if "error" in answer:
            return {"pair": pair, "error": answer["error"]}
    speeds: dict[str, list[float]] = {"ours": [], "peer": []}
    ratios: list[float] = []
    by_processor: list[float] = []
    counts = {"ours": [0, 0], "peer": [0, 0]}
    same, blas = True, ""
    for trial in range(trials):
        for i, prompt in enumerate(golden["prompts"]):
            order = [("ours", mine), ("peer", theirs)]
            answers = {n: w.ask(**job, prompt=prompt) for n, w in (order if (trial + i) % 2 else order[::-1])}
            for name, answer in answers.items():
                # The first token comes from the prefill.
                decoded = len(answer["tokens"]) - 1
                speeds[name].append(decoded / answer["ms"] * 1e3)
                counts[name][0] += decoded
                counts[name][1] += answer["rounds"]
            ratios.append(speeds["ours"][-1] / speeds["peer"][-1])
            by_processor.append(answers["peer"]["cpu_ms"] / answers["ours"]["cpu_ms"])
            blas = "/".join(a["blas"] for _, a in sorted(answers.items()))
            same = same and answers["ours"]["tokens"] == answers["peer"]["tokens"]
    ratios.sort()
    return {
        "pair": pair,
        "same_tokens": same,
        **{f"{n}_committed": c[0] / max(1, c[1]) for n, c in counts.items()},
        **{f"{n}_tok_s": statistics.median(s) for n, s in speeds.items()},
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
        "cpu_ratio": statistics.median(by_processor),
        "blas": blas,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer-python", help="interpreter of the environment that holds mlx-dspark")
    parser.add_argument("--folder", type=Path, default=ROOT / "tests" / "golden")
    parser.add_argument("--pairs", nargs="*", default=PAIRS)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args.worker, args.folder)
    if not args.peer_python:
        parser.error("--peer-python is needed: python -m venv peer && peer/bin/pip install mlx-dspark==0.20.3")
    workers = Worker(sys.executable, "ours", args.folder), Worker(args.peer_python, "peer", args.folder)
    rows = [compare(pair, args.folder, *workers, args.trials, args.tokens) for pair in args.pairs]
    for worker in workers:
        worker.close()
    print(json.dumps({"benchmark": "peer", "load": os.getloadavg()[0], "trials": args.trials, "rows": rows}))
    print(f"{'pair':<20}{'committed/round':>24}{'tokens/s':>20}{'ratio':>8}{'by cpu':>8}  same tokens")
    for row in rows:
        if "error" in row:
            print(f"{row['pair']:<20}  {row['error']}")
            continue
        committed = f"{row['ours_committed']:.2f} : {row['peer_committed']:.2f}"
        speed = f"{row['ours_tok_s']:.0f} : {row['peer_tok_s']:.0f}"
        ratios = f"{row['ratio']:>8.2f}{row['cpu_ratio']:>8.2f}"
        print(f"{row['pair']:<20}{committed:>24}{speed:>20}{ratios}  {row['same_tokens']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

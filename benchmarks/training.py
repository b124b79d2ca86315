"""A drafter trained from nothing by `dspark-chat train`, beside one that exists: accepted lengths by the same loop.

For each seed the command is run as a user would run it and timed whole. Both drafters then decode the prompts that this
run held out. Prints a JSON line and a table.

    python benchmarks/training.py --seeds 0 1 -- --block 7 --draft-vocab 0 --budget 150s
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from engine import backend  # isort: skip  (loads the BLAS, so it comes before anything that imports MLX)

from engine.drafters.load import load_drafter
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.training.data.blocks import Store
from engine.training.loop import accepted_length
from engine.training.run import split
from engine.training.settings import load

GOLDEN = ROOT / "tests" / "golden"


def train(model: Path, out: Path, seed: int, options: list[str]) -> dict[str, float]:
    """Run the command; what it took."""
    command = [sys.executable, str(ROOT / "dspark_chat.py"), "train", "--model", str(model), "--out", str(out)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*command, "--seed", str(seed), "--yes", *options], check=True, stdout=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - began, 1), "processor_seconds": round(processor, 1)}


def held_out(out: Path) -> list[list[int]]:
    """Prompts of the conversations that the run never learnt from."""
    store = Store.open(out / "features")
    held, _ = split(store, load(out).held_out)
    return [store.ids[store.span(int(i))][: int(store.prompts[i])].tolist() for i in held]


def compare(engine: Engine, folders: dict[str, Path], prompts: list[list[int]], tokens: int) -> dict[str, Any]:
    """Tokens a round and rounds by accepted drafts, of each drafter."""

    def both() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, folder in folders.items():
            drafter = load_drafter(folder, engine.target)
            said = accepted_length.decode(engine.target, engine.tokenizer, prompts, drafter, max_tokens=tokens)
            found[name] = {"committed": round(said.committed, 3), "by_length": said.by_length}
        return found

    return engine.run_exclusive(both)


def last_line(out: Path) -> dict[str, Any]:
    """Of the training log: how far it came."""
    line = json.loads((out / "training" / "log.jsonl").read_text().splitlines()[-1])
    return {"steps": line["step"], "anchors": line["anchors"], "training_seconds": round(line["seconds"], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=GOLDEN / "targets" / "tiny-qwen3")
    parser.add_argument("--against", type=Path, default=GOLDEN / "drafters" / "dspark-qwen3")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tokens", type=int, default=256, help="longest answer that is decoded")
    parser.add_argument("--keep", type=Path, help="folder for the runs; a finished one is only measured again")
    parser.add_argument("options", nargs="*", help="given to the command, after --")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for seed in args.seeds:
            out = (args.keep or Path(temporary)) / f"seed{seed}"
            took = {} if (out / "drafter" / "README.md").exists() else train(args.model, out, seed, args.options)
            with open_engine(args.model, name="target", options=Options(drafter="none")) as engine:
                folders = {"trained": out / "drafter", "against": args.against}
                found = compare(engine, folders, held_out(out), args.tokens)
            ratio = found["trained"]["committed"] / found["against"]["committed"]
            rows.append({"seed": seed, **took, **last_line(out), **found, "ratio": round(ratio, 3)})
    facts = {"benchmark": "training", "load": os.getloadavg()[0], "blas": backend.BLAS.kind, "rows": rows}
    print(json.dumps(facts | {"options": args.options}))
    print(f"{'seed':>5} {'trained':>8} {'against':>8} {'ratio':>6} {'seconds':>8} {'steps':>6}")
    for r in rows:
        pair = [r[name]["committed"] for name in ("trained", "against")]
        end = f"{r['ratio']:>6.2f} {r.get('seconds', 0):>8.0f} {r['steps']:>6}"
        print(f"{r['seed']:>5} {pair[0]:>8.2f} {pair[1]:>8.2f} {end}")


if __name__ == "__main__":
    main()

"""How often each drafter is believed, by position in the draft, on prompts of three kinds.

    python benchmarks/acceptance.py --prompts FOLDER [--drafter dspark] [--each 4] [--tokens 96]

Prints one JSON line and a table: for every chain and kind of prompt the acceptance by position with its n, and the
tokens committed a round. Nothing here depends on the machine's speed. The folder holds chat.jsonl, code.jsonl and
math.jsonl with a `turns` list a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine import backend as backend  # before MLX, see its docstring

# isort: split
from engine.calibration.controlled_run import Run
from engine.decoding.draft_length.policy import Full, Pinned
from engine.drafters.chain import Chain
from engine.engine import Engine
from engine.load import load
from engine.types import Request, Round, Sampling

KINDS = ("chat", "code", "math")


def by_position(rounds: Sequence[Round]) -> list[tuple[float, int]]:
    """(acceptance given that all before were accepted, how often it was judged) of each position."""
    longest = max((len(r.drafted) for r in rounds), default=0)
    out: list[tuple[float, int]] = []
    for i in range(longest):
        # A round that a stop cut says nothing about the drafts behind the cut.
        judged = [r for r in rounds if len(r.drafted) > i and r.accepted >= i and len(r.tokens) > i]
        out.append((sum(r.accepted > i for r in judged) / max(1, len(judged)), len(judged)))
    return out


def measure(engine: Engine, chain: Chain, prompts: Sequence[str], args: argparse.Namespace) -> dict[str, object]:
    rounds: list[Round] = []
    sampling = Sampling(temperature=args.temperature, seed=1 if args.coupled else None)

    def one(text: str) -> list[Round]:
        ids = engine.format.render([{"role": "user", "content": text}])
        request = Request(tuple(ids), max_tokens=args.tokens, sampling=sampling)
        policy = Full() if args.cap is None else Pinned(args.cap)
        return Run(engine.loop, engine.tokenizer, chain, request, policy).finish()[1:]

    for text in prompts:
        rounds += engine.run_exclusive(lambda t=text: one(t))
    drafted = [r for r in rounds if r.drafted]
    return {
        "rounds": len(rounds),
        "drafted_rounds": len(drafted),
        "per_round": round(sum(len(r.tokens) for r in rounds) / max(1, len(rounds)), 3),
        "per_drafted_round": round(sum(len(r.tokens) for r in drafted) / max(1, len(drafted)), 3),
        "acceptance": round(sum(r.accepted for r in drafted) / max(1, sum(len(r.drafted) for r in drafted)), 4),
        "by_position": [(round(p, 3), n) for p, n in by_position(drafted)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="the embedded model by default")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--chains", help="which of the loaded chains (all but plain)")
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--each", type=int, default=4, help="prompts of each kind (4)")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--coupled", action="store_true", help="sample under a seed")
    parser.add_argument("--cap", type=int, help="draft length (the drafter's longest)")
    args = parser.parse_args()
    found: dict[str, dict[str, object]] = {}
    with load(args.model, drafter=args.drafter) as engine:
        names = args.chains.split(",") if args.chains else [n for n in engine.chains if n != "none"]
        for name in names:
            for kind in KINDS:
                lines = (Path(args.prompts) / f"{kind}.jsonl").read_text("utf-8").splitlines()[: args.each]
                prompts = [json.loads(line)["turns"][0] for line in lines]
                print(f"{name} on {kind}", file=sys.stderr, flush=True)
                found.setdefault(name, {})[kind] = measure(engine, engine.chain(name), prompts, args)
        print(json.dumps({"model": engine.spec.name, "temperature": args.temperature, "chains": found}))
    for name, kinds in found.items():
        for kind, result in kinds.items():
            assert isinstance(result, dict)
            positions = " ".join(f"{p:.2f}({n})" for p, n in result["by_position"][:8])
            print(
                f"{name:<18}{kind:<6}{result['per_round']:>6} a round, {result['per_drafted_round']:>6} when drafted, "
                f"{100 * result['acceptance']:.0f} % · {positions}"
            )


if __name__ == "__main__":
    main()

"""What the prefix cache saves: a conversation turn by turn, a new chat with the same start, and a restart.

    python benchmarks/prefix.py [--model NAME] [--tokens 2000] [--turns 5] [--reply 24] [--drafter auto]

Prints one JSON line and a table. The first turn is cold; ratios are of time to first token against it, within one run,
by the clock and by processor time (which other processes hardly change). The restart opens the same folder with an
empty memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine import backend  # before MLX, see its docstring

# isort: split
from engine.calibration.calibrator import load_per_core
from engine.engine import Engine
from engine.load import load
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from engine.types import Finished, Prefilled, Request, Tokens

SENTENCES = (
    "The harbour was quiet in the early morning.",
    "Three fishing boats lay at the pier, and a man in a yellow coat was mending his nets.",
    "Gulls circled above the water, waiting for the first catch of the day.",
    "A train crossed the bridge on time, and the bakery opened its shutters.",
)


@dataclass(frozen=True, slots=True)
class Turn:
    name: str
    prompt: int
    cached: int
    hit: str
    previous: int
    """Tokens of the turn before, prompt and reply."""
    ttft_ms: float
    cpu_ms: float
    restore_ms: float
    saved_ms: float


def ask(engine: Engine, messages: list[dict[str, str]], name: str, reply: int, previous: int) -> tuple[Turn, str, int]:
    """One turn; its facts, the reply, and the tokens of prompt and reply."""
    prompt = engine.format.prompt(messages)
    began, cpu = time.perf_counter(), time.process_time()
    first = used = 0.0
    facts: Prefilled | None = None
    done: Finished | None = None
    for event in engine.submit(Request(prompt.ids, boundaries=prompt.boundaries, max_tokens=reply)):
        match event:
            case Prefilled():
                facts = event
            case Tokens() if not first:
                first, used = time.perf_counter() - began, time.process_time() - cpu
            case Finished():
                done = event
            case _:
                pass
    assert facts is not None
    assert done is not None
    turn = Turn(
        name,
        len(prompt.ids),
        facts.cached,
        facts.hit,
        previous,
        first * 1e3,
        used * 1e3,
        facts.restore_ms,
        facts.saved_ms,
    )
    return turn, done.text, len(prompt.ids) + len(done.tokens)


def use(engine: Engine, cache: PrefixCache) -> None:
    engine.options.cache = cache
    plan: Any = engine.scheduler._plan  # pyright: ignore[reportPrivateUsage]
    engine.run_exclusive(lambda: setattr(plan, "cache", cache))


def text_of(engine: Engine, tokens: int) -> str:
    """About so many tokens of running text, every sentence numbered."""
    out, n = "", 0
    while len(engine.tokenizer.encode(out)) < tokens:
        out += f"{n}. {SENTENCES[n % len(SENTENCES)]} "
        n += 1
    return out


def run(engine: Engine, folder: Path, tokens: int, turns: int, reply: int) -> list[Turn]:
    budget = 4 << 30
    use(engine, PrefixCache(budget, DiskTier(folder, label=engine.spec.name)))
    system = {"role": "system", "content": f"You answer briefly, from this text. {text_of(engine, tokens)}"}
    messages = [system, {"role": "user", "content": "Who is at the pier?"}]
    out: list[Turn] = []
    previous = 0
    for n in range(turns):
        turn, text, previous = ask(engine, messages, f"turn {n + 1}", reply, previous)
        out.append(turn)
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": f"And what else, number {n}?"},
        ]
    other = [system, {"role": "user", "content": "What did the bakery do?"}]
    out.append(ask(engine, other, "new chat, same system prompt", reply, 0)[0])
    assert engine.options.cache is not None
    engine.options.cache.close()
    use(engine, PrefixCache(budget, DiskTier(folder, label=engine.spec.name)))
    out.append(ask(engine, messages, "after a restart", reply, previous)[0])
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description="What the prefix cache saves.")
    parser.add_argument("--model", default="")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--reply", type=int, default=24)
    parser.add_argument("--drafter", default="auto")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, load(args.model, drafter=args.drafter) as engine:
        turns = run(engine, Path(folder), args.tokens, args.turns, args.reply)
        cold = turns[0]
        rows = [{**asdict(t), "ratio": t.ttft_ms / cold.ttft_ms, "cpu_ratio": t.cpu_ms / cold.cpu_ms} for t in turns]
        facts = {"benchmark": "prefix", "model": engine.spec.name, "drafter": engine.drafter, "turns": rows}
        print(json.dumps({**facts, "machine": backend.report().as_dict(), "load_per_core": round(load_per_core(), 2)}))
    print(f"\n{'':<30}{'prompt':>8}{'cached':>8}  {'hit':<9}{'first token':>12}{'ratio':>8}{'cpu':>8}{'restore':>10}")
    for t in turns:
        print(
            f"{t.name:<30}{t.prompt:>8}{t.cached:>8}  {t.hit:<9}{t.ttft_ms:>9.0f} ms{t.ttft_ms / cold.ttft_ms:>8.1%}"
            f"{t.cpu_ms / cold.cpu_ms:>8.1%}{t.restore_ms:>7.1f} ms"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

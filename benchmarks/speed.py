"""Plain decoding, lookup and mlx-lm's own loop on the same weights, taking turns in one process.

    python benchmarks/speed.py [--prompts FOLDER] [--tokens 96] [--turns 3] [--sections chat,copy,scripted]

Prints one JSON line and a table. Three kinds of text: chat (where lookup must cost nothing), text that the embedded
model really re-emits from its context, and a scripted continuation: a file of 150 lines with one name changed, forced
on the model token by token, so that its cost is real and its content known. Each turn decodes a prompt in every mode;
ratios are taken within the turn, so that what else the machine does hits both sides, and given a second time by
processor time, which other processes hardly change. All modes share the preloaded BLAS. Times are of decoding: from the
first token to the last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine import backend  # before MLX, see its docstring

# isort: split
import mlx.core as mx

from engine.calibration.calibrator import load_per_core
from engine.calibration.controlled_run import Run
from engine.decoding.draft_length.policy import Full, Pinned
from engine.diagnostics.benchmark import Spread
from engine.drafters.chain import NONE
from engine.engine import Engine
from engine.load import load
from engine.types import Request

CHAT = (
    "Explain in a few sentences why the sky is blue during the day and red in the evening.",
    "Give me three tips for a first visit to Amsterdam.",
    "What is the difference between a virus and a bacterium?",
    "Write a short letter to a friend who moved to another city.",
)
PARAGRAPH = (
    "The harbour was quiet in the early morning. Three fishing boats lay at the pier, and a man in a yellow coat was "
    "mending his nets. Gulls circled above the water, waiting for the first catch of the day."
)
RECORD = (
    '{"name": "Alice Johnson", "age": 42, "city": "Amsterdam", "email": "alice@example.org", '
    '"languages": ["Dutch", "English", "French"]}'
)
COPY = {
    "paragraph": f"Repeat the following text word for word:\n\n{PARAGRAPH}",
    "record": f"Print this JSON again, unchanged:\n\n{RECORD}",
}
"""Prompts that SmolLM2-135M-Instruct obeys: it re-emits its context."""


STEPS = (
    ("strip_blanks", "lines", "Remove lines that hold nothing but spaces."),
    ("parse_header", "text", "Read the column names of the first line."),
    ("guess_types", "columns", "Decide which columns are numbers and which are dates."),
    ("fill_missing", "rows", "Replace empty cells by the median of their column."),
    ("drop_duplicates", "records", "Keep the first of several equal records."),
    ("convert_units", "values", "Turn pounds into kilograms and miles into kilometres."),
    ("sort_by_date", "entries", "Order entries from the oldest to the newest."),
    ("group_by_city", "people", "Put everybody who lives in the same city together."),
    ("count_words", "documents", "Count how often each word occurs in all documents."),
    ("find_outliers", "samples", "Mark samples that lie far from all the others."),
    ("scale_features", "matrix", "Bring every column to mean zero and variance one."),
    ("split_sets", "data", "Separate training, validation and test sets."),
    ("draw_chart", "series", "Draw one bar for each month of the year."),
    ("write_report", "summary", "Write the summary to a file as plain text."),
    ("send_mail", "message", "Send the message to everybody on the list."),
)


def long_file(name: str) -> str:
    """About 150 lines of Python in which the function `name` is defined once and called three times."""
    lines = ["import statistics", "", "", f"def {name}(path):", '    """Read a table from a file."""']
    lines += ["    with open(path) as file:", "        return [line.split(',') for line in file]", "", ""]
    for i, (verb, noun, what) in enumerate(STEPS):
        lines += [f"def {verb}({noun}, limit={7 * i + 3}):", f'    """{what}"""']
        lines += [f"    {noun} = {name}({noun!r})"] if i % 6 == 2 else [f"    kept_{i} = []"]
        lines += [f"    for index, item in enumerate({noun}):", f"        if index > limit * {i + 2}:"]
        lines += [f"            return {verb}.__name__, kept_{i}", f"        kept_{i}.append((index, item))"]
        lines += [f"    return statistics.mode({noun})", "", ""]
    return "\n".join(lines)


class Forced:
    """Makes the target say a script: the logit of the next scripted token wins, whatever the model thinks."""

    needs_draft = False

    def __init__(self, script: Sequence[int]) -> None:
        self._script = list(script)
        self._at = 0

    def trim(self, drafts: Sequence[int]) -> int:
        return len(drafts)

    def rows(self, logits: mx.array, drafts: mx.array) -> mx.array:
        n = logits.shape[0]
        wanted = (self._script[self._at : self._at + n] + [0] * n)[:n]
        return logits + mx.where(mx.arange(logits.shape[1])[None] == mx.array(wanted)[:, None], 1e6, 0.0)

    def commit(self, tokens: Sequence[int]) -> None:
        self._at += len(tokens)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One request in one mode."""

    tokens: int
    ms: float
    cpu_ms: float
    rounds: int
    host_ms: float


@dataclass(slots=True)
class Taken:
    """One mode in one section."""

    rates: list[float] = field(default_factory=list[float])
    ratios: list[float] = field(default_factory=list[float])
    cpu_ratios: list[float] = field(default_factory=list[float])
    tokens: int = 0
    rounds: int = 0
    ms: float = 0.0
    host_ms: float = 0.0


def ours(engine: Engine, lookup: bool, cap: str) -> Callable[[Request], Decoded]:
    """Our loop."""

    def decode(request: Request) -> Decoded:
        chain = engine.chains["lookup"] if lookup else NONE
        policy = (engine.policy(None, chain) if cap == "auto" else Full()) if lookup else Pinned(0)
        run = Run(engine.loop, engine.tokenizer, chain, request, policy)
        rounds = run.finish()[1:]
        inside = sum(r.ms - r.host_ms for r in rounds)
        tokens = sum(len(r.tokens) for r in rounds)
        return Decoded(tokens, run.wall_ms, run.cpu_ms, len(rounds), max(0.0, run.wall_ms - inside))

    return decode


def theirs(engine: Engine) -> Callable[[Request], Decoded]:
    """mlx-lm's generate_step on the same model object: the loop of `mlx_lm.generate` without its detokeniser."""

    def decode(request: Request) -> Decoded:
        from mlx_lm.generate import generate_step

        model: Any = engine.target.model  # type: ignore[attr-defined]
        count, began, used = 0, 0.0, 0.0
        for _token, _logprobs in generate_step(mx.array(list(request.prompt)), model, max_tokens=request.max_tokens):
            if count == 0:
                began, used = time.perf_counter(), time.process_time()
            count += 1
        wall, cpu = (time.perf_counter() - began) * 1e3, (time.process_time() - used) * 1e3
        return Decoded(count - 1, wall, cpu, count - 1, 0.0)

    return decode


def sections(engine: Engine, args: argparse.Namespace) -> dict[str, list[Request]]:
    """Requests by section."""

    def ask(text: str, **other: Any) -> Request:
        ids = engine.format.render([{"role": "user", "content": text}])
        return Request(tuple(ids), **{"max_tokens": args.tokens, "stop_ids": frozenset(), **other})

    chat = list(CHAT)
    if args.prompts:
        for name in ("chat", "code", "math"):
            lines = (Path(args.prompts) / f"{name}.jsonl").read_text("utf-8").splitlines()[: args.each]
            chat += [json.loads(line)["turns"][0] for line in lines]
        chat = chat[len(CHAT) :]
    script = engine.tokenizer.encode(long_file("read_table"))
    scripted = ask(
        "Rename load_table to read_table in this file and print all of it:\n\n" + long_file("load_table"),
        max_tokens=min(args.scripted, len(script)),
    )
    found = {
        "chat": [ask(text) for text in chat],
        "copy": [ask(text, stop_ids=None, max_tokens=2 * args.tokens) for text in COPY.values()],
        "scripted": [scripted],
    }
    return {name: found[name] for name in args.sections.split(",")}


def fresh(request: Request, script: Sequence[int]) -> Request:
    """A processor remembers where it is, so each run of a script gets its own."""
    from dataclasses import replace

    return replace(request, processors=(Forced(script),)) if script else request


def measure(engine: Engine, args: argparse.Namespace) -> dict[str, dict[str, Taken]]:
    script = engine.tokenizer.encode(long_file("read_table"))
    out: dict[str, dict[str, Taken]] = {}
    for section, requests in sections(engine, args).items():
        modes = {"plain": ours(engine, False, args.cap), "lookup": ours(engine, True, args.cap)}
        if section == "chat":
            modes["mlx_lm"] = theirs(engine)
        taken = out[section] = {name: Taken() for name in modes}
        for turn in range(args.turns):
            for at, request in enumerate(requests):
                done: dict[str, Decoded] = {}
                order = list(modes)
                shift = (turn + at) % len(order)
                for mode in [*order[shift:], *order[:shift]]:
                    one = fresh(request, script if section == "scripted" else ())
                    got = done[mode] = engine.run_exclusive(lambda d=modes[mode], r=one: d(r))
                    mine = taken[mode]
                    mine.tokens, mine.ms = mine.tokens + got.tokens, mine.ms + got.ms
                    mine.rounds, mine.host_ms = mine.rounds + got.rounds, mine.host_ms + got.host_ms
                    mine.rates.append(1000 * got.tokens / got.ms)
                    print(
                        f"  {section} turn {turn} prompt {at} {mode}: {mine.rates[-1]:.2f} tok/s, "
                        f"{got.cpu_ms / got.tokens:.0f} ms of processor a token",
                        file=sys.stderr,
                        flush=True,
                    )
                base = done["plain"]
                for mode, got in done.items():
                    taken[mode].ratios.append((got.tokens / got.ms) / (base.tokens / base.ms))
                    taken[mode].cpu_ratios.append((got.tokens / got.cpu_ms) / (base.tokens / base.cpu_ms))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="the embedded model by default")
    parser.add_argument("--prompts", help="folder with chat.jsonl, code.jsonl and math.jsonl")
    parser.add_argument("--each", type=int, default=2, help="prompts of each file (2)")
    parser.add_argument("--tokens", type=int, default=96, help="tokens an answer (96)")
    parser.add_argument("--scripted", type=int, default=400, help="tokens of the scripted file (400)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cap", choices=("auto", "full"), default="auto", help="lookup's length")
    parser.add_argument("--sections", default="chat,copy,scripted")
    args = parser.parse_args()
    busy = load_per_core()
    with load(args.model, drafter="lookup") as engine:
        if args.cap == "auto":
            engine.calibrator.measure()
        taken = measure(engine, args)
        report = backend.report()
        whole = {
            "model": engine.spec.name,
            "blas": f"{report.blas} x{report.threads}",
            "load_per_core": [round(busy, 2), round(load_per_core(), 2)],
            "turns": args.turns,
            "sections": {
                section: {
                    mode: {
                        "tokens_per_s": round(Spread.of(t.rates).median, 3),
                        "vs_plain": round(Spread.of(t.ratios).median, 4),
                        "spread": round(Spread.of(t.ratios).half, 4),
                        "vs_plain_cpu": round(Spread.of(t.cpu_ratios).median, 4),
                        "spread_cpu": round(Spread.of(t.cpu_ratios).half, 4),
                        "per_round": round(t.tokens / max(1, t.rounds), 3),
                        "host_share": round(t.host_ms / t.ms, 4) if t.ms else 0.0,
                        "tokens": t.tokens,
                    }
                    for mode, t in modes.items()
                }
                for section, modes in taken.items()
            },
        }
    print(json.dumps(whole))
    print(
        f"\n{'section':<10}{'mode':<9}{'tok/s':>8}{'vs plain':>10}{'±':>7}{'by cpu':>8}{'±':>7}"
        f"{'tok/round':>11}{'host':>8}"
    )
    for section, modes in whole["sections"].items():
        for mode, t in modes.items():
            print(
                f"{section:<10}{mode:<9}{t['tokens_per_s']:>8.2f}{t['vs_plain']:>10.3f}{t['spread']:>7.3f}"
                f"{t['vs_plain_cpu']:>8.3f}{t['spread_cpu']:>7.3f}"
                f"{t['per_round']:>11.2f}{100 * t['host_share']:>7.1f}%"
            )


if __name__ == "__main__":
    main()

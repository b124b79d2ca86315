"""What HTTP adds to a lone request: the same request sent to a server and given to its engine directly, in turn.

    python benchmarks/overhead.py [--model NAME] [--drafter lookup+dspark] [--pairs 8] [--max-tokens 32]

Both go through one engine in this process; the HTTP client is a process of its own. One JSON line: medians of each
side, and of the ratio within each pair, by the clock and by this process's processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from local_server import serving
from serving import PROMPTS

from engine import backend
from engine.engine import Engine
from engine.load import load
from engine.types import Request, Tokens

CLIENT = """
import http.client, json, sys, time
connection = http.client.HTTPConnection(sys.argv[1], timeout=600)
for line in sys.stdin:
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", line, {"content-type": "application/json"})
    response, first = connection.getresponse(), None
    while (chunk := response.readline()):
        if first is None and chunk.startswith(b"data: {"):
            if json.loads(chunk[6:])["choices"][0]["delta"].get("content"):
                first = time.perf_counter() - began
    print(json.dumps([first, time.perf_counter() - began]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds of one request."""

    first: float
    whole: float
    cpu: float


def direct(engine: Engine, text: str, args: argparse.Namespace) -> Took:
    cpu, began, first = time.process_time(), time.perf_counter(), 0.0
    ids = engine.format.prompt([{"role": "user", "content": text}]).ids
    for event in engine.submit(Request(ids, max_tokens=args.max_tokens, drafter=args.drafter or None)):
        if not first and isinstance(event, Tokens) and event.text:
            first = time.perf_counter() - began
    return Took(first * 1e3, (time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3)


def over_http(client: subprocess.Popen[str], text: str, args: argparse.Namespace) -> Took:
    assert client.stdin is not None
    assert client.stdout is not None
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "stream": True}
    body |= {"max_tokens": args.max_tokens, "temperature": 0} | ({"drafter": args.drafter} if args.drafter else {})
    cpu = time.process_time()
    client.stdin.write(json.dumps(body) + "\n")
    client.stdin.flush()
    first, whole = json.loads(client.stdout.readline())
    return Took((first or 0.0) * 1e3, whole * 1e3, (time.process_time() - cpu) * 1e3)


def summary(pairs: list[tuple[Took, Took]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("first", "whole", "cpu"):
        plain = [getattr(a, name) for a, _ in pairs]
        served = [getattr(b, name) for _, b in pairs]
        ratios = [b / a for a, b in zip(plain, served, strict=True) if a]
        out[name] = {
            "direct_ms": round(statistics.median(plain), 2),
            "http_ms": round(statistics.median(served), 2),
            "ratio": round(statistics.median(ratios), 4) if ratios else None,
            "least_direct_ms": round(min(plain), 2),
            "least_http_ms": round(min(served), 2),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=32)
    args = parser.parse_args()
    with load(args.model, drafter=args.drafter or "auto", max_batch=4) as engine, serving(engine) as (url, _):
        args.drafter = ""
        host = url.removeprefix("http://")
        command = [sys.executable, "-c", CLIENT, host]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            pairs: list[tuple[Took, Took]] = []
            for i in range(-2, args.pairs):
                text = PROMPTS[i % len(PROMPTS)]
                direct(engine, text, args) if i < len(PROMPTS) else None  # the prompt is in the prefix cache for both
                order = (direct, over_http) if i % 2 else (over_http, direct)
                took = {f: f(engine if f is direct else client, text, args) for f in order}  # type: ignore[arg-type]
                if i >= 0:
                    pairs.append((took[direct], took[over_http]))
            assert client.stdin is not None
            client.stdin.close()
        print(
            json.dumps(
                {
                    **summary(pairs),
                    "drafter": engine.drafter,
                    "args": vars(args),
                    "pairs": [[asdict(a), asdict(b)] for a, b in pairs],
                    "machine": backend.report().as_dict(),
                }
            )
        )


if __name__ == "__main__":
    main()

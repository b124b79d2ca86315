"""Load on running servers: latency and throughput at several concurrencies, with vLLM's definitions.

    python benchmarks/serving.py --server http://127.0.0.1:8080 --concurrency 1,2,4 --requests 8 --max-tokens 64
    python benchmarks/serving.py --server ours=http://127.0.0.1:8080,pid=4711 --server theirs=http://127.0.0.1:8081

TTFT: request sent to first text. TPOT: (end - first text) / (tokens - 1). ITL: between text chunks. Works on any OpenAI
chat server that reports usage in streams; the acceptance columns need this project's `x_dspark` block. Several servers
are asked in turn within each trial, so that a machine that drifts drifts for all. With a process id (Linux) the
processor time of a token is reported as well, which a busy machine distorts less than the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

PROMPTS = (
    "Write a Python function that merges two sorted lists, then explain each line.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show your steps.",
    "Explain to a ten-year-old why the sky is blue.",
    "Here is a list: apples, pears, plums. Repeat it three times, numbered.",
    "Give a JSON object that describes a book: title, author, year, and three topics.",
    "Rewrite this politely: send me the report now, I have waited long enough.",
    "def add(a, b):\n    return a - b\n\nFind the bug in this function and print the corrected function.",
    "Summarise in three sentences how a bicycle stays upright while it moves.",
)


@dataclass(slots=True)
class Sample:
    ttft: float = 0.0
    end: float = 0.0
    tokens: int = 0
    cached: int = 0
    prompt: int = 0
    gaps: list[float] = field(default_factory=list[float])
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    text: str = ""

    @property
    def tpot(self) -> float:
        return (self.end - self.ttft) / max(1, self.tokens - 1)


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    url: str
    pid: int | None = None

    @classmethod
    def read(cls, text: str) -> Server:
        """[name=]url[,pid=number]"""
        head, _, pid = text.partition(",pid=")
        name, _, url = head.rpartition("=")
        return cls(name or url, url, int(pid) if pid else None)

    def cpu_s(self) -> float | None:
        """Seconds of processor time that the process has used so far."""
        if self.pid is None:
            return None
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    server: str
    concurrency: int
    requests: int
    seconds: float
    requests_per_s: float
    tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    acceptance: float | None
    accept_length: float | None
    cached_share: float
    cpu_ms_per_token: float | None


async def one(client: httpx.AsyncClient, args: argparse.Namespace, index: int) -> Sample:
    body: dict[str, Any] = {
        "model": args.model,
        "messages": [{"role": "user", "content": PROMPTS[index % len(PROMPTS)]}],
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        "x_dspark": True,
    }
    if args.temperature:
        body["seed"] = index
    if args.drafter:
        body["drafter"] = args.drafter
    sample, began, last = Sample(), time.perf_counter(), 0.0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            now = time.perf_counter() - began
            read(sample, json.loads(line[6:]), now, last)
            last = now if sample.text else last
    sample.end = time.perf_counter() - began
    return sample


def read(sample: Sample, event: dict[str, Any], now: float, last: float) -> None:
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""
        if text:
            if not sample.text:
                sample.ttft = now
            elif last:
                sample.gaps.append(now - last)
            sample.text += text
    block = event.get("x_dspark")
    if block:
        sample.drafted, sample.accepted, sample.rounds = block["drafted"], block["accepted"], block["rounds"]
    usage = event.get("usage")
    if usage:
        sample.tokens, sample.prompt = usage["completion_tokens"], usage["prompt_tokens"]
        sample.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


async def level(args: argparse.Namespace, server: Server, concurrency: int) -> tuple[Row, list[str]]:
    gate = asyncio.Semaphore(concurrency)
    headers = {"authorization": f"Bearer {args.api_key}"} if args.api_key else {}
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(
        base_url=server.url, timeout=args.timeout, limits=limits, headers=headers, trust_env=False
    ) as client:

        async def gated(index: int) -> Sample:
            async with gate:
                return await one(client, args, index)

        began, cpu = time.perf_counter(), server.cpu_s()
        samples = await asyncio.gather(*(gated(i) for i in range(args.requests)))
        seconds, after = time.perf_counter() - began, server.cpu_s()
    spent = None if cpu is None or after is None else after - cpu
    return summary(server.name, concurrency, samples, seconds, spent), [s.text for s in samples]


def summary(name: str, concurrency: int, samples: list[Sample], seconds: float, cpu_s: float | None) -> Row:
    gaps = sorted(g for s in samples for g in s.gaps) or [0.0]
    drafted, accepted = sum(s.drafted for s in samples), sum(s.accepted for s in samples)
    rounds, tokens = sum(s.rounds for s in samples), sum(s.tokens for s in samples)
    return Row(
        name,
        concurrency,
        len(samples),
        round(seconds, 3),
        round(len(samples) / seconds, 3),
        round(tokens / seconds, 2),
        round(statistics.median(s.ttft for s in samples) * 1e3, 1),
        round(statistics.median(s.tpot for s in samples) * 1e3, 2),
        round(gaps[len(gaps) // 2] * 1e3, 2),
        round(gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))] * 1e3, 2),
        round(accepted / drafted, 4) if drafted else None,
        round(tokens / rounds, 3) if rounds else None,
        round(sum(s.cached for s in samples) / max(1, sum(s.prompt for s in samples)), 4),
        None if cpu_s is None else round(cpu_s * 1e3 / max(1, tokens), 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", type=Server.read, metavar="[NAME=]URL[,pid=PID]")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--model", default="default")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--concurrency", default="1,2,4")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--trials", type=int, default=1, help="rounds over all servers and levels")
    args = parser.parse_args()
    args.server = args.server or [Server.read("http://127.0.0.1:8080")]
    rows: list[Row] = []
    texts: dict[str, list[list[str]]] = {}
    for server in args.server:
        asyncio.run(level(args, server, 1))  # warms it up; not reported
    for _ in range(args.trials):
        for concurrency in (int(c) for c in args.concurrency.split(",")):
            for server in args.server:
                row, found = asyncio.run(level(args, server, concurrency))
                rows.append(row)
                texts.setdefault(server.name, []).append(found)
    report(args, rows, texts)


def report(args: argparse.Namespace, rows: list[Row], texts: dict[str, list[list[str]]]) -> None:
    names = list(asdict(rows[0]))
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(v) for v in asdict(row).values()) + " |")
    same = {
        name: [sum(a == b for a, b in zip(levels[0], level, strict=True)) for level in levels]
        for name, levels in texts.items()
    }
    given = {**vars(args), "server": [asdict(s) for s in args.server]}
    print(json.dumps({"rows": [asdict(r) for r in rows], "texts_equal_to_first_level": same, "args": given}))


if __name__ == "__main__":
    main()

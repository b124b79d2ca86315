"""Many requests of random shape, some given up, on one server: does memory stay flat, and does everything come back?

    python benchmarks/soak.py --requests 2000 [--model FOLDER] [--at-once 8] [--seed 1]

All dialects, streamed or not, prompts long and short, constraints, several choices, bad bodies, and clients that leave
at any moment. One JSON line: resident memory along the way, what came back, and the gauges at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import httpx
from local_server import serving

from engine import backend as backend  # before MLX, see its docstring
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from server.app import App

MODEL = ROOT / "tests" / "golden" / "targets" / "tiny-qwen3"
CACHE = 4 << 20
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}


@dataclass(slots=True)
class Report:
    requests: int = 0
    seconds: float = 0.0
    resident_mb: list[float] = field(default_factory=list[float])
    """After each tenth of the requests, the process's garbage collected."""
    ended: dict[str, int] = field(default_factory=dict[str, int])
    """How requests ended: a status, or `left`."""
    gauges: dict[str, float] = field(default_factory=dict[str, float])
    """At the end; all of them should be 0."""
    cache_bytes: int = 0
    cache_budget: int = 0

    @property
    def growth_mb(self) -> float:
        """From the middle on: by then everything that is kept for good has been made."""
        middle = self.resident_mb[len(self.resident_mb) // 2 :]
        return max(middle) - middle[0] if middle else 0.0


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def request(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A path and a body, now and then one that is refused."""
    text = " ".join(chance.choice(("river", "stone", "seven", "blue", "why")) for _ in range(chance.randint(1, 60)))
    limit = chance.randint(1, 16)
    common: dict[str, Any] = {"stream": chance.random() < 0.6, "drafter": chance.choice(("none", "lookup"))}
    if chance.random() < 0.3:
        common |= {"temperature": 0.8, "top_p": 0.9}
    if chance.random() < 0.04:
        common["temperature"] = "hot"
    messages = [{"role": "user", "content": text}]
    match chance.randrange(4):
        case 0:
            extra: dict[str, Any] = chance.choice(
                ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 2}, {"seed": 5}, {"stop": ["e"]})
            )
            if chance.random() < 0.1:
                extra = {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}
            return "/v1/chat/completions", {"messages": messages, "max_tokens": limit, **common, **extra}
        case 1:
            return "/v1/completions", {"prompt": text, "max_tokens": limit, **common}
        case 2:
            return "/v1/responses", {"input": text, "max_output_tokens": limit, **common}
        case _:
            return "/v1/messages", {"messages": messages, "max_tokens": limit, **common}


async def one(client: httpx.AsyncClient, chance: random.Random, ended: Counter[str]) -> None:
    path, body = request(chance)
    patience = chance.uniform(0.0, 0.3) if chance.random() < 0.25 else 60.0
    try:
        async with asyncio.timeout(patience):
            if body["stream"]:
                async with client.stream("POST", path, json=body) as response:
                    async for _ in response.aiter_bytes():
                        pass
            else:
                response = await client.post(path, json=body)
        ended[str(response.status_code)] += 1
    except TimeoutError:
        ended["left"] += 1


async def drive(url: str, report: Report, requests: int, at_once: int, seed: int) -> None:
    chance, ended = random.Random(seed), Counter[str]()
    limits = httpx.Limits(max_connections=at_once * 2)
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, limits=limits) as client:
        gate = asyncio.Semaphore(at_once)

        async def gated() -> None:
            async with gate:
                await one(client, random.Random(chance.random()), ended)

        step = max(1, requests // 10)
        for done in range(0, requests, step):
            await asyncio.gather(*(gated() for _ in range(min(step, requests - done))))
            gc.collect()
            report.resident_mb.append(round(resident_mb(), 1))
    report.ended = dict(ended)


def settle(engine: Engine, app: App, report: Report) -> None:
    """Wait until what clients left behind is gone, at most ten seconds, and read the gauges."""
    deadline = time.monotonic() + 10
    while True:
        totals = app.metrics.totals()
        running, waiting = engine.scheduler.load
        report.gauges = {
            "running": totals["running"],
            "waiting": totals["waiting"],
            "engine_running": running,
            "engine_waiting": waiting,
            "state_bytes": engine.state_bytes,
        }
        if not any(report.gauges.values()) or time.monotonic() > deadline:
            return
        time.sleep(0.05)


def soak(requests: int, *, at_once: int = 8, seed: int = 1, model: Path = MODEL) -> Report:
    cache = PrefixCache(CACHE)
    report = Report(requests, cache_budget=cache.budget)
    began = time.perf_counter()
    with (
        open_engine(model, options=Options(max_batch=4, cache=cache, chunk=32)) as engine,
        serving(engine) as (url, app),
    ):
        asyncio.run(drive(url, report, requests, at_once, seed))
        settle(engine, app, report)
        report.cache_bytes = cache.nbytes
    report.seconds = round(time.perf_counter() - began, 1)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, default=MODEL)
    args = parser.parse_args()
    report = soak(args.requests, at_once=args.at_once, seed=args.seed, model=args.model)
    print(json.dumps({**asdict(report), "growth_mb": report.growth_mb, "machine": backend.report().as_dict()}))


if __name__ == "__main__":
    main()

"""`dspark-chat verify`: a certificate that every drafter at every draft length says what plain decoding says."""

from __future__ import annotations

import argparse
import json

from cli.common import add_common, add_prompts, encode, opened, read_prompts, table
from engine.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_prompts(parser)
    parser.add_argument("--drafters", metavar="A,B", help="chains to check (all loaded)")
    parser.add_argument("--caps", default="1,2,4,full", metavar="N,N", help="draft lengths (1,2,4,full)")
    parser.add_argument("--tokens", type=int, default=48, metavar="N", help="tokens an answer (48)")
    parser.add_argument("--sampled", action="store_true", help="at temperature 1 under a seed instead of greedy")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    from engine.diagnostics.certify import certify
    from engine.types import Sampling

    prompts = read_prompts(args)
    caps = [_cap(text) for text in args.caps.split(",")]
    law = Sampling(temperature=1.0, seed=1) if args.sampled else Sampling()
    with opened(args) as (engine, meter):
        drafters = args.drafters.split(",") if args.drafters else [n for n in engine.chains if n != "none"]
        found = certify(
            engine,
            encode(engine, prompts),
            drafters,
            caps=caps,
            max_tokens=args.tokens,
            sampling=law,
            progress=meter,
        )
        meter.done()
        if args.json:
            print(json.dumps(found.as_dict(), indent=2))
            return 0 if found.ok else 1
        rows = []
        for name in drafters:
            mine = [c for c in found.cases if c.drafter == name]
            bad, ties = sum(not c.verdict.ok for c in mine), sum(c.verdict.tie for c in mine)
            verdict = f"{bad} DIFFER" if bad else "lossless"
            rows.append((name, len(mine), sum(c.tokens for c in mine), sum(c.accepted for c in mine), ties, verdict))
        print(table(("drafter", "cases", "tokens", "accepted", "ties", "verdict"), rows))
        for case in found.failures:
            cap = "full" if case.cap is None else case.cap
            print(f"prompt {case.prompt}, {case.drafter}, cap {cap}: {case.verdict}")
        for name in found.idle:
            print(f"note: no draft of {name} was accepted here, so this proves little about it")
        print(f"{engine.spec.name}: {'lossless' if found.ok else 'NOT lossless'} in {len(found.cases)} cases")
        return 0 if found.ok else 1


def _cap(text: str) -> int | None:
    if text == "full":
        return None
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"'{text}' is not a draft length; give numbers from 1, or full.")
    return int(text)

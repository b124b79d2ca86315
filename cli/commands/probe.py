"""`dspark-chat probe`: is a drafter read the way it was trained? Exit 1 when another reading drafts better."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cli.parser import add_settings, read_settings

if TYPE_CHECKING:
    from engine.diagnostics.drafter_check import ProbeReport, Score
    from engine.hub import Found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens to answer each prompt with (64)")
    parser.add_argument("--json", action="store_true", help="as one object")
    add_settings(parser, "model", "drafter", "folders")


def run(args: argparse.Namespace) -> int:
    from engine import backend  # noqa: F401, I001  (loads the BLAS, so it comes before anything that imports MLX)
    from engine import hub
    from engine.chat.template import ChatFormat
    from engine.drafters.checkpoint import read_checkpoint
    from engine.targets.load import load_target
    from engine.diagnostics.drafter_check import PROMPTS, describe, probe

    config = read_settings(args)
    found = hub.ensure(config.model, folders=config.folders)
    assert found.path is not None
    path = drafter_of(found, config.drafter, config.folders)
    loaded = load_target(found.path, name=found.name)
    form = ChatFormat(loaded.tokenizer.backend)
    prompts = [form.render([{"role": "user", "content": text}]) for text in PROMPTS]

    def show(score: Score) -> None:
        if not args.json:
            line = f"{score.committed:6.2f} tokens a round   first draft {score.first:4.0%}   {describe(score.reading)}"
            print(line, flush=True)

    if not args.json:
        print(f"{path} on {found.name}: {len(prompts)} prompts, {args.tokens} tokens each, greedy", file=sys.stderr)
    report = probe(loaded.target, read_checkpoint(path), loaded.tokenizer, prompts, tokens=args.tokens, on_score=show)
    if args.json:
        print(json.dumps(as_dict(report), indent=2))
    else:
        for note in report.notes:
            print(f"! {note}")
        print(("" if report.right else "! ") + report.verdict)
    return 0 if report.right else 1


def drafter_of(found: Found, wanted: str, folders: Sequence[Path | str]) -> Path:
    """The drafter's place on disk, fetched when it is not there."""
    from engine import hub
    from engine.drafters import registry
    from engine.errors import UnknownDrafter

    mode = wanted.removeprefix("lookup+")
    known = dict(found.card.drafters) if found.card else {}
    if mode == "auto" and known:
        mode = found.card.mode if found.card and found.card.mode in known else next(iter(known))
    reference = known.get(mode, mode)
    if reference in registry.names():
        raise UnknownDrafter(
            f"No learned drafter is known for {found.name}; name one with --drafter owner/name, a folder or a .gguf."
        )
    return hub.ensure_drafter(reference, folders=folders)


def as_dict(report: ProbeReport) -> dict[str, object]:
    """Scores as plain data, the file's own first."""
    scores = [
        {
            **asdict(score.reading),
            "committed": score.committed,
            "first": score.first,
            "places": len(score.counts),
        }
        for score in report.scores
    ]
    return {"right": report.right, "verdict": report.verdict, "notes": list(report.notes), "scores": scores}

"""A glance at a drafter when it is first loaded for a model: is it read from the right row, with the right rope?

P6 of the checks at load (P1 to P5 are the model's own, engine/targets/self_check.py): the target reads a fixed text
once, and the drafter's first drafts at some places of it are held against what the target says there, under the
readings that go wrong most often. A warning and never a switch; `dspark-chat probe` looks longer and at more.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from engine.backend.host_values import ints
from engine.diagnostics.drafter_check import Answer, ProbeReport, Reading, Score, describe, score
from engine.drafters.checkpoint import Checkpoint, read_checkpoint
from engine.targets.base import Target
from engine.targets.self_check import libraries, remembered

QUESTION = "How does a bicycle stay upright while it is moving?"
ANSWER = (
    "A moving bicycle stays upright because it keeps steering itself under the point where it would fall. When it "
    "begins to lean to the left, the front wheel turns to the left as well, and the wheels move back under the weight "
    "of the rider. The rider helps with small movements of the handlebar, mostly without noticing. The faster the "
    "bicycle moves, the quicker this correction works, so that it is easy to ride straight at speed and hard to stand "
    "still. The spinning wheels also resist being tilted, but that effect is small compared with the steering."
)
ROWS = 136
"""Of the text that is read."""
PLACES, EVERY = 32, 3
"""Where the drafter is asked, the last ones of these rows."""
ENOUGH = 0.75
"""Share of right first drafts from which on no other reading could be clearly better at so few places."""
VERSION = 1
"""Raise when the check changes, so that cached verdicts are made again."""


def warning(target: Target, drafter: Path, fingerprint: str, tokens: Seq[int], folder: Path) -> str:
    """A sentence when another reading of this drafter is clearly better than its file's own, else nothing. Found out
    once for a pair and these libraries; about a second."""
    name = f"reading-{target.spec.fingerprint}-{fingerprint}-{VERSION}-{libraries()}.json"

    def find_out() -> dict[str, str]:
        report = glance(target, read_checkpoint(drafter), tokens)
        if report.right:
            return {"warning": ""}
        best = describe(report.best.reading)
        return {"warning": f"would draft better read as {best}; `dspark-chat probe` tells more"}

    return str(remembered(folder / name if target.spec.fingerprint else None, find_out).get("warning", ""))


def glance(target: Target, checkpoint: Checkpoint, tokens: Seq[int]) -> ProbeReport:
    """Scores of the first drafts alone, the file's own reading first."""
    config = checkpoint.config
    own = Reading(config.logits_start, 0, config.rope.interleaved, None)
    known = read(target, list(tokens)[:ROWS], config.taps)
    scores = [score(target, checkpoint, own, [known], 1)]
    best = scores[0]
    if best.first < ENOUGH:
        for reading in (
            replace(own, start=1 - own.start),
            replace(own, interleaved=not own.interleaved),
            replace(own, start=1 - own.start, interleaved=not own.interleaved),
        ):
            scores.append(score(target, checkpoint, reading, [known], 1))
            best = max(best, scores[-1], key=_committed)
    right = not best.clearly_better(scores[0])
    return ProbeReport(tuple(scores), scores[0] if right else best, config.notes)


def _committed(found: Score) -> float:
    return found.committed


def read(target: Target, tokens: list[int], taps: tuple[int, ...]) -> Answer:
    """The target's taps on a text, and what it would say at each place of it."""
    state = target.new_state()
    with state.begin(len(tokens), record=False) as transaction:
        body = target.body(mx.array([tokens], dtype=mx.int32), state, taps)
        transaction.commit(len(tokens))
    assert body.taps is not None
    first = max(1, len(tokens) - PLACES * EVERY)
    said = mx.argmax(target.logits(body.hidden[:, first:])[0], axis=-1)
    mx.eval(said, body.taps)
    truth = (*tokens[1 : first + 1], *ints(said))
    return Answer(tuple(tokens), first, body.taps[0], taps, truth=truth, every=EVERY)

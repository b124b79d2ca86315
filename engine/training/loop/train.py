"""The training stage: steps, checkpoints that survive a kill, held-out acceptance, the best parameters kept.

A run is a folder. `state.safetensors` holds all that the next step depends on, written whole or not at all;
`best.safetensors` the parameters with the highest held-out acceptance; `log.jsonl` one line per report. Knows no
screen: progress goes to a callback.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from engine.paths import replacing
from engine.training.data import blocks
from engine.training.data.blocks import Ints, Store, Teacher
from engine.training.loop import evaluate, optimizer, step
from engine.training.model import model
from engine.weight_files import safetensors


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. Either `steps` (reproducible) or `seconds` (of training time, over all sittings) is set."""

    steps: int = 0
    seconds: float = 0.0
    sequences: int = 4
    anchors: int = 96
    rate: float = 1.5e-3
    clip: float = 1.0
    weight_decay: float = 0.0
    noise: float = 0.0
    """Standard deviation of what is added to whitened features, whose own is 1."""
    seed: int = 0
    weights: step.Weights = field(default_factory=step.Weights)
    report_every: int = 20
    save_every: int = 100
    evaluate_every: int = 200
    judge_every: int = 5

    def progress(self, done: int, used: float) -> float:
        """Share of the run behind us, 0..1."""
        return done / self.steps if self.steps else used / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Report:
    """What a front end shows."""

    step: int
    anchors: int
    seconds: float
    progress: float
    loss: float
    hit: tuple[float, ...]
    accept: tuple[float, ...]
    held_out: float | None = None
    """Committed tokens per round on held-out answers, when measured at this step."""
    best: float = 0.0
    judged: float | None = None
    """The same by the real decode loop on a few prompts, when asked at this step."""


class Trainer:
    """One run. `train()` continues where the folder's state stands."""

    def __init__(
        self,
        folder: Path,
        shape: model.Shape,
        plan: Plan,
        frozen: step.Frozen,
        store: Store,
        teacher: Teacher,
        vocabulary: Ints,
        members: Ints,
        held_out: Ints,
    ) -> None:
        self.folder, self.shape, self.plan = folder, shape, plan
        self.frozen, self.store, self.teacher, self.vocabulary = frozen, store, teacher, vocabulary
        self.members, self.held_out = members, held_out
        self.done, self.anchors, self.used, self.best = 0, 0, 0.0, 0.0
        self.judge: Callable[[model.Params], float] | None = None
        """Tokens a round by the real decode loop; asked at every `judge_every`-th measurement."""
        self.params: model.Params = {}
        self.moments: Any = {}

    def begin(self, params: model.Params) -> None:
        """Start from `params`, unless the folder already holds a state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "state.safetensors").exists():
            self._resume()
        else:
            self.params, self.moments = params, optimizer.start(params)

    def train(self, report: Callable[[Report], None] = lambda _: None) -> None:
        """Run to the end of the plan. Stopping it at any moment loses at most `save_every` steps."""
        plan, recent = self.plan, list[step.Stats]()
        while (progress := plan.progress(self.done, self.used)) < 1.0:
            started = time.monotonic()
            recent.append(self._step(progress))
            held = self._measure() if self.done % plan.evaluate_every == 0 else None
            self.used += time.monotonic() - started
            ended = plan.progress(self.done, self.used) >= 1.0
            if not ended and (held is not None or self.done % plan.report_every == 0):
                self._report(recent, held, report)
                recent = []
            if self.done % plan.save_every == 0:
                self.save()
        held = self._measure()
        self.save()
        self._report(recent, held, report)

    def _step(self, progress: float) -> step.Stats:
        plan = self.plan
        chosen = blocks.choose(self.store, self.members, plan.sequences, plan.seed, self.done)
        batch = blocks.blocks(
            self.store, self.teacher, chosen, plan.anchors, self.shape.drafts, seed=plan.seed, step=self.done
        )
        noise = None
        if plan.noise:
            noise = mx.array(blocks.noise(batch.features.shape, plan.noise, plan.seed, self.done))
        stats, grads = step.gradients(self.shape, self.params, self.frozen, batch, plan.weights, noise)
        rate = optimizer.schedule(progress, plan.rate)
        self.params, self.moments, _ = optimizer.update(
            self.params, grads, self.moments, step=self.done, rate=rate, clip=plan.clip, weight_decay=plan.weight_decay
        )
        mx.eval(self.params, self.moments, stats)
        self.done += 1
        self.anchors += int((batch.weights[..., 0] > 0).sum())
        return stats

    def _measure(self) -> float:
        """Held-out acceptance; keeps the parameters when they are the best so far."""
        found = evaluate.acceptance(
            self.shape, self.params, self.frozen, self.vocabulary, self.store, self.held_out.tolist()
        )
        if found.committed > self.best:
            self.best = found.committed
            self._write("best.safetensors", {"params": self.params})
        return found.committed

    def _report(self, recent: list[step.Stats], held: float | None, report: Callable[[Report], None]) -> None:
        if not recent:
            return

        def mean(name: str) -> Any:
            return np.mean([np.array(getattr(s, name)) for s in recent], axis=0).tolist()

        line = Report(
            self.done, self.anchors, self.used, min(1.0, self.plan.progress(self.done, self.used)), mean("loss"),
            tuple(mean("hit")), tuple(mean("accept")), held, self.best, self._judged(held is not None),
        )  # fmt: skip
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps(asdict(line)) + "\n")
        report(line)

    def _judged(self, measured: bool) -> float | None:
        every = self.plan.evaluate_every * self.plan.judge_every
        last = self.plan.progress(self.done, self.used) >= 1.0
        if self.judge is None or not measured or not (last or self.done % every == 0):
            return None
        return self.judge(self.params)

    def save(self) -> None:
        self._write("state.safetensors", {"params": self.params, "moments": self.moments})

    def _write(self, name: str, tree: Any) -> None:
        """Whole or not at all: a kill in the middle leaves the previous file."""
        facts = {
            "done": self.done,
            "anchors": self.anchors,
            "used": self.used,
            "best": self.best,
            "shape": self.shape.as_dict(),
        }
        with replacing(self.folder / name) as part, part.open("wb") as stream:
            mx.save_safetensors(stream, dict(tree_flatten(tree)), {"facts": json.dumps(facts)})

    def _resume(self) -> None:
        tree, facts = read(self.folder / "state.safetensors")
        self.params, self.moments = tree["params"], tree["moments"]
        self.done, self.anchors, self.used, self.best = (facts[k] for k in ("done", "anchors", "used", "best"))


def read(path: Path) -> tuple[Any, dict[str, Any]]:
    """(tree, facts) of a file that a Trainer wrote."""
    safetensors.check(path)
    loaded: Any = mx.load(str(path), return_metadata=True)
    arrays, metadata = loaded
    return tree_unflatten(list(arrays.items())), json.loads(metadata["facts"])

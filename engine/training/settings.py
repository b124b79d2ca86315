"""What a training run is asked to do, and what it will take. Pure values; reads and writes nothing but its own file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.paths import write_atomically
from engine.targets.base import TargetSpec
from engine.training.loop import step
from engine.training.model import model

KINDS = ("dspark", "dflash")
"""Those of `drafters/registry.py` that are made here."""

_FREE = ("budget", "steps", "bits", "save_every", "evaluate_every")
"""Settings that may change between sittings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One run. The defaults suit small targets on a CPU; docs/LOG.md has the measurements behind them."""

    model: str
    kind: str = "dspark"
    conversations: int = 400
    data: str = ""
    """Conversations that exist already (.jsonl or .jsonl.gz)."""
    prompts: str = ""
    """Questions to ask, one a line; without it the model writes its own."""
    max_tokens: int = 256
    taps: tuple[int, ...] = ()
    layers: int = 1
    block: int = 4
    """Rows of a block; a DSpark drafts as many tokens."""
    rank: int = 64
    draft_vocab: int = 4096
    intermediate: int = 0
    """0: about 1.75 times the hidden size."""
    temperature: float = 0.6
    """Of the target's distribution that is learnt: below 1 favours what greedy decoding needs."""
    ce: float = 0.3
    l1: float = 0.7
    confidence: float = 0.3
    rate: float = 0.0
    """Peak learning rate; 0 takes it from the width, see `peak_rate`."""
    sequences: int = 0
    """Conversations a step; 0 takes it from the width, see `batch`."""
    anchors: int = 0
    """In each of them; 0 makes it 256 a step in all."""
    budget: float = 7200.0
    """Seconds of training, over all sittings."""
    steps: int = 0
    """Instead of a budget: reproducible to the bit on one machine."""
    weight_decay: float = 0.3
    noise: float = 0.4
    """On whitened features; against learning few conversations by heart."""
    learn_questions: bool = False
    """Whether the questions in `data` are the model's own text, too; those that it writes itself are."""
    seed: int = 0
    held_out: int = 24
    bits: int = 8
    save_every: int = 50
    evaluate_every: int = 200
    parent: str = ""
    """Folder of a run of the same model whose drafter this one starts from."""

    @property
    def self_asked(self) -> bool:
        """Whether the model writes the questions of this run."""
        return not self.data and not self.prompts

    def peak_rate(self, hidden: int) -> float:
        """Adam's step is the same for every weight, so a narrow drafter bears and needs a higher rate: 0.001 at 576,
        four times as much at 128 (both measured), and not below a quarter for wide ones."""
        return self.rate or min(5e-3, max(2.5e-4, 1e-3 * 576 / hidden))

    def batch(self, hidden: int) -> tuple[int, int]:
        """(conversations a step, anchors in each). Anchors of different conversations teach more than neighbours do,
        but each conversation's context is projected whole: cheap for a narrow drafter, where eight of 32 anchors beat
        two of 128 clearly at the same cost, and not for a wide one."""
        sequences = self.sequences or (8 if hidden <= 256 else 2)
        return sequences, self.anchors or max(1, 256 // sequences)

    def weights(self) -> step.Weights:
        """A DFlash learns by cross-entropy alone and has no confidence head."""
        return step.Weights(self.ce, self.l1, self.confidence if self.kind == "dspark" else 0.0)

    def shape(self, spec: TargetSpec, taps: tuple[int, ...], draft_vocab: int, mask_id: int) -> model.Shape:
        hidden = spec.hidden_size
        head_dim = 64 if hidden % 64 == 0 else max(d for d in (32, 16, 8, 4, 2) if hidden % d == 0)
        learned = self.kind == "dspark"
        # A DFlash has one head more; see graft.
        heads = hidden // head_dim + (not learned)
        return model.Shape(
            hidden=hidden,
            vocab=spec.vocab_size,
            draft_vocab=draft_vocab,
            taps=taps,
            layers=self.layers,
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            intermediate=self.intermediate or -(-round(1.75 * hidden) // 64) * 64,
            block=self.block,
            rank=self.rank if learned else 0,
            confidence=learned,
            mask_id=mask_id,
        )


def default_taps(layers: int, count: int = 5) -> tuple[int, ...]:
    """Spread evenly from the second layer to the last but one."""
    if layers < 4:
        return tuple(range(layers))
    count = min(count, layers - 2)
    return tuple(sorted({round(1 + i * (layers - 3) / max(1, count - 1)) for i in range(count)}))


def duration(text: str) -> float:
    """Seconds of '2h', '45m', '90s', '1h30m' or a plain number of minutes.

    Raises:
        UsageError: anything else.
    """
    import re

    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    if text.strip().replace(".", "", 1).isdigit():
        return float(text) * 60.0
    if not found or not text.strip():
        raise UsageError(f"'{text}' is not a length of time; write 2h, 45m or 1h30m.")
    hours, minutes, seconds = (float(x or 0) for x in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def keep(folder: Path, wanted: Settings) -> Settings:
    """Write the settings of a new run, or continue an old one under its own.

    Raises:
        UsageError: the folder holds a run that was asked for something else.
    """
    file = folder / "run.json"
    if file.exists():
        old = load(folder)
        fixed = replace(wanted, **{name: getattr(old, name) for name in _FREE})
        if fixed != old:
            names = [k for k, v in asdict(fixed).items() if v != asdict(old)[k]]
            raise UsageError(
                f"{folder} holds a run with another {', '.join(names)}; use another --out, or the same options."
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(asdict(wanted), indent=2) + "\n")
    return wanted


def load(folder: Path) -> Settings:
    """The settings of the run in `folder`.

    Raises:
        UsageError: there is none.
    """
    file = folder / "run.json"
    if not file.exists():
        raise UsageError(f"{folder} holds no training run.")
    data: dict[str, Any] = json.loads(file.read_text())
    data["taps"] = tuple(data["taps"])
    return Settings(**data)

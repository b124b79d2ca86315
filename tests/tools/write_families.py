#!/usr/bin/env python3
"""Measure every family on tiny random models and write docs/families.md.

    python tests/tools/write_families.py [--check]

Everything in the table is measured here: nothing is claimed from reading. --check compares what does not depend on the
machine with the page and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ.setdefault("DSPARK_BLAS", "stock")
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine import backend  # noqa: F401  (before mlx)

import mlx.core as mx  # isort: skip
from fakes import Run, ScriptedDrafter
from mlx.utils import tree_flatten

from engine.diagnostics.self_test.tiny_configs import token_id
from engine.drafters.chain import Chain
from engine.drafters.load import load_drafter
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.errors import UsageError
from engine.targets.families import FAMILIES
from engine.targets.load import load_target
from tests.engine.targets.feeding import distance, feed, prefilled, recurrent_slots, same, tokens_of
from tests.tools.make_tiny_drafters import make_drafter
from tests.tools.make_tiny_models import make

PAGE = ROOT / "docs" / "families.md"
BLOCK, TOKENS = 6, 16
CAPS = (1, 4, 7)
WIDER = {
    "gemma4_text": {},
    "gemma4_dense": {},
    "granitemoehybrid": {"hidden_size": 128, "mamba_n_heads": 8},
    "lfm2": {"hidden_size": 128, "block_dim": 128},
    "lfm2_moe": {"hidden_size": 128},
}
"""How to get heads of 32 values where `head_dim` does not say it."""

COVERS = {
    "llama": "llama, mistral, qwen2, qwen3, phi3, smollm3 and other decoders of keys and values",
    "qwen3_moe": "qwen3_moe and other mixtures of experts over keys and values",
    "gemma4_text": "Gemma 4 E2B, E4B: shared keys, per-layer inputs",
    "gemma4_dense": "Gemma 4 12B, 31B: K = V in full layers",
    "qwen3_5": "Qwen3.5, Bonsai 27B (ternary 2-bit, with or without Hadamard rotation)",
    "qwen3_5_moe": "Qwen3.5 with experts",
    "qwen3_next": "Qwen3-Next",
    "nemotron_h": "Nemotron-H, with and without experts",
    "granitemoehybrid": "Granite 4 hybrids, with and without experts",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2 with experts",
    "muse_glimmer": "Muse Glimmer",
}


@dataclass
class Line:
    family: str
    states: str
    state_gap: float
    logit_gap: float
    block_gap: float
    drafters: str
    packed: str
    pictures: str

    @property
    def stable(self) -> tuple[str, ...]:
        """What must not depend on the machine."""
        return (self.family, self.states, self.drafters, self.packed, self.pictures)

    def row(self) -> str:
        cells = (
            f"`{self.family}`", COVERS[self.family], self.states, gap(self.state_gap), gap(self.logit_gap),
            gap(self.block_gap), self.drafters, self.packed, self.pictures,
        )  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def gap(value: float) -> str:
    return "bit-equal" if value == 0 else f"{value:.0e}"


def states(target: Any) -> str:
    names = {"append": "keys and values", "window": "window", "recurrent": "recurrent", "conv": "convolution"}
    kinds = [layer.kind for layer in target.new_state().layers]
    shared = target.spec.num_layers - len(kinds)
    parts = [names[k] for k in names if k in kinds]
    idle = "without a state" if target.spec.model_type == "nemotron_h" else "reading others' keys"
    return ", ".join(parts) + (f" ({shared} layers {idle})" if shared else "")


def rollback(target: Any) -> tuple[float, float, float]:
    """Largest differences after partial accepts: states and next logits against one token at a time, and against one
    round of exactly the kept rows."""
    worst = [0.0, 0.0, 0.0]
    for prompt in (8, 13, 20):
        start = prefilled(target, tokens_of(prompt)).snapshot()
        drafts = tokens_of(BLOCK, seed=1)
        cold = same(target, start)
        for keep in range(1, BLOCK + 1):
            warm, block = same(target, start), same(target, start)
            feed(target, warm, drafts, keep)
            feed(target, cold, drafts[keep - 1 : keep])
            feed(target, block, drafts[:keep])
            worst[0] = max(worst[0], distance(recurrent_slots(warm), recurrent_slots(cold)))
            worst[2] = max(worst[2], distance(recurrent_slots(warm), recurrent_slots(block)))
            after = feed(target, warm, [3]), feed(target, same(target, cold.snapshot()), [3])
            worst[1] = max(worst[1], distance([after[0]], [after[1]]))
    return worst[0], worst[1], worst[2]


def drafters(target: Any, folder: Path) -> str:
    """Which drafters gave the tokens of plain decoding at every cap."""
    prompt = tokens_of(60)
    right = Run(target, prompt, max_tokens=TOKENS, stop_ids=frozenset()).output

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(prompt)
        return [(t + (at + i) % 4 // 3) % 288 for i, t in enumerate(right[at : at + k])]

    spec = target.spec
    sizes = {"hidden": spec.hidden_size, "layers": spec.num_layers, "vocab": spec.vocab_size}
    parts: dict[str, Any] = {"scripted": ScriptedDrafter(script), "lookup": Lookup(LookupSettings(min_n=1))}
    for kind in ("dspark", "dflash"):
        parts[kind] = load_drafter(make_drafter(kind, folder / kind, **sizes, mask_id=token_id("<|mask|>")), target)
    wrong = [
        f"{name} at {cap}"
        for name, part in parts.items()
        for cap in CAPS
        if Run(target, prompt, Chain(name, (part,)), max_tokens=TOKENS, cap=cap, stop_ids=frozenset()).output != right
    ]
    return "all equal" if not wrong else "DIFFERS: " + ", ".join(wrong)


def packed(family: str, folder: Path) -> str:
    """Whether keys and values can be packed, in a model whose heads are wide enough."""
    try:
        load_target(make(family, folder, changes=WIDER.get(family, {"head_dim": 32})), kv_bits=8)
    except UsageError:
        return "no"
    return "yes"


def measure(family: str, folder: Path) -> Line:
    target: Any = load_target(make(family, folder / "model")).target
    floats = {w.dtype for _, w in tree_flatten(target.model.parameters()) if mx.issubdtype(w.dtype, mx.floating)}
    assert floats == {mx.float32}
    state_gap, logit_gap, block_gap = rollback(target)
    pictures = "yes" if family == "muse_glimmer" else "no"
    return Line(
        family, states(target), state_gap, logit_gap, block_gap, drafters(target, folder),
        packed(family, folder / "packed"), pictures,
    )  # fmt: skip


HEAD = """# Families

Which models run, how their memory is undone after a rejected draft, and what that costs in exactness. The table is
measured on tiny random models of each family (float32, CPU, the reference BLAS) and written by
`tests/tools/write_families.py`; the same facts are tests in `tests/engine/targets/`.

A model is chosen by the `model_type` of its config. What is not in the table is tried as a plain decoder of keys and
values. Every model is probed once when it is first loaded: its logits against its library's own, its hidden states, a
prompt read in parts, a rolled-back round, its windows. What fails is offered with less (lookup only, or plain decoding
only) or refused, with the reason.

| family | models | state | state after a partial accept, against one token at a time | next logits, likewise | \
state, against a round of the kept rows | scripted, lookup, DSpark and DFlash drafts at 1, 4 and 7 | `--kv-bits` | \
pictures |
|---|---|---|---|---|---|---|---|---|
"""

TAIL = """
## What the columns mean

- **bit-equal**: after keeping 1 to 6 of 6 drafted rows, at three prompt lengths (inside, across and past a window of 16
  tokens), every recurrent array and the next logits have the same bits as if only the kept tokens had been decoded.
- A Mamba-2 layer computes several rows in a matrix form and a single row in another. Its state after a partial accept
  is, bit for bit, that of a round of exactly the kept rows; against one token at a time it differs by rounding, by the
  sizes in the table. A tie of two tokens within that size may fall differently than in plain decoding.
- On a GPU, and with a tuned BLAS on the CPU, a matrix product of one row and one of eight rows round differently, for
  every family and every program. There, "equal" means equal up to such ties.
- Experts: lookup is off by default, since each drafted row may wake other experts; `--drafter lookup` turns it on.
- `--kv-bits` packs the keys and values of full attention. Windows, recurrent and convolution states stay as they are.
  It is refused where layers read the keys of others, and where heads are no multiple of 32 values.
- Pictures need `pip install 'dspark-chat[vision]'`, and a checkpoint that carries its vision tower.

## By `model_type`

"""


def page(lines: list[Line]) -> str:
    table = "\n".join(line.row() for line in lines)
    types: dict[str, list[str]] = {}
    for model_type, module in FAMILIES.items():
        types.setdefault(module, []).append(model_type)
    listed = "\n".join(
        f"- `engine/targets/{module}.py`: {', '.join(f'`{t}`' for t in sorted(names))}"
        for module, names in sorted(types.items())
    )
    note = """
- `engine/targets/families/dense.py`: everything else.

Bonsai packs of 1 bit are refused: released versions of MLX differ in whether and how they multiply them. The picture
generator of the same name is no language model.
"""
    return HEAD + table + "\n" + TAIL + listed + note


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(argv).check
    lines: list[Line] = []
    for family in COVERS:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(measure(family, Path(folder)))
        sys.stdout.write(lines[-1].row() + "\n")
    if check:
        stored = PAGE.read_text(encoding="utf-8")
        missing = [line.family for line in lines if not all(cell in stored for cell in line.stable)]
        sys.stdout.write(f"differs: {', '.join(missing)}\n" if missing else "the page is up to date\n")
        return 1 if missing else 0
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

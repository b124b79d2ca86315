"""Times several sequences that decode together: the verify curves of a batch, and what drafting for all of it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.calibration.controlled_run import Run, Scripted
from engine.calibration.meter import REPEATS, Meter, open_run, rising, varied_ids
from engine.chat.tokenizer import Tokenizer
from engine.decoding.batch import Batch
from engine.decoding.draft_length.cost_model import Curve
from engine.decoding.loop import Loop
from engine.drafters.base import Drafter
from engine.drafters.chain import Chain
from engine.errors import Cancelled

BATCH_WIDTHS = (1, 2, 4, 8)
BATCH_TEXT = 16


@dataclass(frozen=True, slots=True)
class Crowd:
    """Sequences that decode together for a measurement."""

    loop: Loop
    tokenizer: Tokenizer
    prompt: Sequence[int]

    def of(self, part: Drafter[Any], size: int) -> tuple[Batch, list[Run]]:
        # Each with a text of its own: sequences that say the same would wake the same experts, too.
        texts = varied_ids(self.prompt, self.loop.target.spec.vocab_size, size * BATCH_TEXT)
        runs = [
            open_run(self.loop, self.tokenizer, Chain(part.name, (part,)), texts[at : at + BATCH_TEXT])
            for at in range(0, len(texts), BATCH_TEXT)
        ]
        batch = Batch()
        for run in runs:
            assert run.batch.state is not None
            batch.join(run.sequence, run.batch.state)
        return batch, runs

    def step(self, batch: Batch, runs: Sequence[Run], cap: int) -> float:
        """Milliseconds of one round of all with `cap` drafts each."""
        for run in runs:
            run.dial(cap)
        began = time.perf_counter()
        self.loop.step(batch)
        return (time.perf_counter() - began) * 1e3


def measure_batches(
    meter: Meter,
    crowd: Crowd,
    scripted: Scripted,
    drafters: Sequence[Drafter[Any]],
    most: int,
    refused: dict[str, str],
) -> dict[int, Curve]:
    """Verify curves of several sequences in one forward, for 2, 4, 8 … and the most there may be; and what drafting for
    as many at once takes, see `_drafts_of`."""
    out: dict[int, Curve] = {}
    together = [d for d in drafters if hasattr(d, "propose_rows")]
    for size in sorted({2**i for i in range(1, most.bit_length()) if 2**i <= most} | ({most} if most > 1 else set())):
        try:
            batch, runs = crowd.of(scripted, size)
            for turn in range(REPEATS[0] + 1):
                meter.say(f"measuring {size} at once", 0.87)
                for width in BATCH_WIDTHS:
                    ms = crowd.step(batch, runs, width - 1)
                    if turn:
                        meter.add(f"batch {size}", width, ms)
            out[size] = rising(meter.curve(f"batch {size}"), flat=False)
            for drafter in together:
                _draft_together(meter, crowd, (batch, runs), drafter, size, refused)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001  a grid with a hole serves, see Costs.verify_ms
            refused[f"batch {size}"] = f"could not be measured ({type(error).__name__}: {error})"
    return out


def _draft_together(
    meter: Meter,
    crowd: Crowd,
    verify: tuple[Batch, list[Run]],
    drafter: Drafter[Any],
    size: int,
    refused: dict[str, str],
) -> None:
    """What a round of a crowd takes more where it drafts than where drafts are free, one right after the other."""
    if not meter.left(2.0):
        refused[f"drafts of {drafter.name} for {size} at once"] = "the time for measuring was up"
        return
    batch, runs = crowd.of(drafter, size)
    caps = {drafter.max_draft} if getattr(drafter, "full_block", False) else {1, drafter.max_draft}
    for turn in range(REPEATS[0]):
        meter.say(f"measuring {size} at once", 0.87)
        for cap in sorted(caps):
            alone, drafting = crowd.step(*verify, cap), crowd.step(batch, runs, cap)
            if turn:
                meter.add(f"{drafter.name} {size}", cap, max(0.0, drafting - alone))


def drafts_of(meter: Meter, drafter: Drafter[Any], size: int) -> Curve | None:
    points = meter.curve(f"{drafter.name} {size}")
    return rising(points, flat=bool(getattr(drafter, "full_block", False))) if points else None

"""From nothing but the tiny model: how far a short training comes against the linear start and the golden drafter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.drafters.load import load_drafter
from engine.engine import Options, open_engine
from engine.training import conversations, evaluate, verify
from engine.training.run import Run
from engine.training.settings import Settings

GOLDEN = Path(__file__).parents[2] / "golden"
REACHED = 0.5
"""Share of the golden drafter's accepted drafts that the short form must reach (0.55 when written); docs/LOG.md has the
long one."""


class Quiet:
    def stage(self, name, detail): ...
    def progress(self, done, total): ...
    def report(self, report): ...


@pytest.fixture(scope="module")
def engine():
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", name="tiny", options=Options(drafter="none")) as made:
        yield made


def test_a_short_training_comes_near_the_golden_drafter(engine, tmp_path, monkeypatch):
    """Both on the same held-out prompts, by the real loop; the golden drafter learnt from the target's own texts."""
    monkeypatch.setattr(conversations, "MAX_QUESTION", 24)
    asked = Settings(
        "tiny", conversations=32, max_tokens=80, layers=2, block=7, draft_vocab=0, steps=1, held_out=3,
        save_every=1000, evaluate_every=1000, bits=16, noise=0.1, weight_decay=0.1,
    )  # fmt: skip
    run = Run(tmp_path, asked, engine, Quiet())
    run.features(run.conversations())

    def accepted(trainer):
        parts = (trainer.shape, trainer.params, trainer.frozen, trainer.vocabulary, trainer.store)
        return evaluate.acceptance(*parts, [int(i) for i in trainer.held_out]).committed

    begun = run.train()
    start = engine.run_exclusive(lambda: accepted(begun))
    trained = Run(tmp_path, replace(asked, steps=40), engine, Quiet()).train()

    def both():
        store = trained.store
        prompts = [store.ids[store.span(int(i))][: int(store.prompts[i])].tolist() for i in trained.held_out]
        drafter = load_drafter(GOLDEN / "drafters" / "dspark-qwen3", engine.target)
        golden = verify.decode(engine.target, engine.tokenizer, prompts, drafter, max_tokens=64)
        return golden.committed, accepted(trained)

    golden, ours = engine.run_exclusive(both)
    print(f"golden {golden:.2f}, ours {ours:.2f}, from the linear start's {start:.2f}")
    assert ours > start
    assert ours - 1.0 >= REACHED * (golden - 1.0)

"""The training stage: it learns, it survives a kill, it keeps its best."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from engine.training.data import blocks
from engine.training.loop import evaluate, step, train
from engine.training.model import model


def _trainer(bench, folder, **plan):
    defaults = {"steps": 8, "sequences": 2, "anchors": 8, "save_every": 3, "evaluate_every": 4, "report_every": 2}
    made = train.Plan(**(defaults | plan))
    parts = (bench.store, bench.teacher, bench.vocabulary, bench.members, bench.members[:4])
    return train.Trainer(folder, bench.shape, made, bench.frozen, *parts)


def _begin(trainer, bench, seed=0):
    trainer.begin(model.init(bench.shape, bench.start, mx.random.key(seed)))
    return trainer


class Killed(Exception):
    pass


@pytest.mark.slow
def test_sixteen_sequences_are_learnt_by_heart(make, tmp_path):
    bench = make(sequences=16, length=20, intermediate=128, rank=16)
    trainer = _trainer(
        bench, tmp_path, steps=700, sequences=8, anchors=13, rate=8e-3, save_every=700, evaluate_every=10_000,
        report_every=700, weights=step.Weights(0.5, 0.5, 0.1),
    )  # fmt: skip
    _begin(trainer, bench).train()
    lengths = [
        evaluate.accepted(
            bench.shape, trainer.params, bench.frozen, mx.array(bench.vocabulary.astype(np.int32)), bench.store, i
        )[: -bench.shape.drafts + 1]
        for i in range(16)
    ]
    assert np.mean(np.concatenate(lengths)) >= 0.9 * bench.shape.drafts


@pytest.mark.parametrize("killed_at", [1, 4, 6])
def test_killed_and_resumed_equals_uninterrupted(bench, tmp_path, killed_at):
    whole = _begin(_trainer(bench, tmp_path / "whole"), bench)
    whole.train()

    broken = _begin(_trainer(bench, tmp_path / "broken"), bench)
    steps = broken._step

    def dying(progress):
        if broken.done == killed_at:
            raise Killed
        return steps(progress)

    broken._step = dying
    with pytest.raises(Killed):
        broken.train()
    # The second sitting starts from other parameters, which the saved state must override where there is one.
    resumed = _begin(_trainer(bench, tmp_path / "broken"), bench, seed=0 if killed_at < 3 else 7)
    assert resumed.done == killed_at // 3 * 3
    resumed.train()
    assert resumed.done == whole.done == 8
    found = dict(tree_flatten(resumed.params))
    for name, wanted in tree_flatten(whole.params):
        assert mx.array_equal(wanted, found.pop(name)), name
    assert not found


def test_a_half_written_state_is_never_read(bench, tmp_path):
    trainer = _begin(_trainer(bench, tmp_path), bench)
    trainer.train()
    (tmp_path / ".state.safetensors.999999999.part").write_bytes(b"torn")
    again = _begin(_trainer(bench, tmp_path), bench, seed=3)
    assert again.done == 8


def test_reports_and_the_log_say_the_same(bench, tmp_path):
    reports = []
    _begin(_trainer(bench, tmp_path), bench).train(reports.append)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [r.step for r in reports]
    assert reports[-1].progress == 1.0
    assert len(reports[-1].hit) == bench.shape.drafts
    measured = [r.held_out for r in reports if r.held_out is not None]
    assert max(measured) == reports[-1].best
    _, facts = train.read(tmp_path / "best.safetensors")
    assert facts["best"] == reports[-1].best


def test_a_budget_ends_the_run(bench, tmp_path):
    trainer = _begin(_trainer(bench, tmp_path, steps=0, seconds=0.5), bench)
    trainer.train()
    assert trainer.used >= 0.5
    assert trainer.done > 0


def test_batches_depend_on_seed_and_step_alone(bench):
    def draw(seed, at):
        chosen = blocks.choose(bench.store, bench.members, 2, seed, at)
        return blocks.blocks(bench.store, bench.teacher, chosen, 5, 3, seed=seed, step=at)

    a, b, c = draw(0, 7), draw(0, 7), draw(0, 8)
    assert np.array_equal(a.tokens, b.tokens) and np.array_equal(a.anchors, b.anchors)
    assert not (np.array_equal(a.tokens, c.tokens) and np.array_equal(a.anchors, c.anchors))


def test_rows_count_until_the_text_or_the_draft_vocabulary_ends(make):
    bench = make(sequences=1, length=12)
    outside = int(np.setdiff1d(np.arange(40), bench.vocabulary)[1])
    bench.store.ids[9] = outside
    batch = blocks.blocks(bench.store, bench.teacher, np.array([0]), 99, 3, seed=0, step=0)
    alive = {int(a): (batch.weights[0, i] > 0).tolist() for i, a in enumerate(batch.anchors[0])}
    assert alive == {
        6: [True, True, False],  # 7, 8, then the token that cannot be drafted
        7: [True, False, False],
        8: [False, False, False],
        9: [True, True, False],  # 10, 11, then the end
        10: [True, False, False],
    }


def test_a_walk_counts_what_a_decode_would_commit():
    # Anchor 0 gets two drafts and the target's own token, landing at 3; there nothing, landing at 4; then the end.
    assert evaluate.walk(np.array([2, 0, 9, 0, 1, 0])) == (6, 3)


def test_whitening_evens_out_the_taps(bench):
    maps = np.array(bench.frozen.whiten)
    for tap in range(2):
        x = bench.store.taps[:, tap * 32 : (tap + 1) * 32].astype(np.float32) @ maps[tap]
        moments = x.T @ x / len(x)
        assert np.abs(moments - np.eye(32)).max() < 0.3


def test_noise_is_the_same_again_and_changes_the_step(bench, tmp_path):
    a = blocks.noise((2, 3, 4), 0.5, 0, 7)
    assert np.array_equal(a, blocks.noise((2, 3, 4), 0.5, 0, 7))
    assert not np.array_equal(a, blocks.noise((2, 3, 4), 0.5, 0, 8))
    quiet, loud = (_begin(_trainer(bench, tmp_path / str(n), steps=2, noise=n), bench) for n in (0.0, 0.5))
    quiet.train()
    loud.train()
    assert not mx.array_equal(quiet.params["fc"], loud.params["fc"])


def test_self_written_questions_count_as_answers(bench):
    wider = blocks.with_questions(bench.store, np.array([0, 2]), 3)
    assert wider.prompts[:4].tolist() == [3, 6, 3, 6]
    assert bench.store.prompts[0] == 6

"""What a block may see, and that the exported drafter says what the trained one says."""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from engine.drafters.checkpoint import read_checkpoint
from engine.drafters.load import build
from engine.training.data import blocks
from engine.training.export import export
from engine.training.loop import evaluate, step
from engine.training.model import model


def _block(bench, anchors=(9, 12, 20), sequence=3):
    batch = blocks.blocks(bench.store, bench.teacher, np.array([sequence]), 99, bench.shape.drafts, seed=0, step=0)
    keep = [int(np.flatnonzero(batch.anchors[0] == a)[0]) for a in anchors]
    batch = batch._replace(anchors=batch.anchors[:, keep], tokens=batch.tokens[:, keep], labels=batch.labels[:, keep])
    return batch, step.to_block(bench.shape, bench.frozen, batch)


def _params(bench):
    params = model.init(bench.shape, bench.start, mx.random.key(1))
    if "confidence" in params:
        params["confidence"]["proj"] = mx.random.normal(params["confidence"]["proj"].shape, key=mx.random.key(2))
    return params


@pytest.mark.parametrize("layers", [1, 2])
def test_a_block_sees_nothing_at_or_after_its_anchor(make, layers):
    bench = make(layers=layers)
    params = _params(bench)
    batch, block = _block(bench)
    before = model.backbone(bench.shape, params, block)
    for i, anchor in enumerate(batch.anchors[0].tolist()):
        features = np.array(batch.features)
        features[0, anchor:] = np.random.default_rng(0).normal(size=features[0, anchor:].shape) * 9
        tokens = np.array(batch.tokens)
        tokens[0, :, 1:] = (tokens[0, :, 1:] + 7) % bench.shape.vocab
        changed = step.to_block(bench.shape, bench.frozen, batch._replace(features=features, tokens=tokens))
        after = model.backbone(bench.shape, params, changed)
        assert mx.allclose(before[0, i], after[0, i], atol=1e-5), anchor


def test_a_block_sees_its_anchor_and_every_row_before_it(bench):
    params = _params(bench)
    batch, block = _block(bench, anchors=(9,))
    before = model.backbone(bench.shape, params, block)
    for position in (7, 8):
        features = np.array(batch.features)
        features[0, position] *= -3
        after = model.backbone(
            bench.shape, params, step.to_block(bench.shape, bench.frozen, batch._replace(features=features))
        )
        assert not mx.allclose(before, after, atol=1e-3)
    tokens = np.array(batch.tokens)
    tokens[..., 0] = (tokens[..., 0] + 1) % bench.shape.vocab
    after = model.backbone(bench.shape, params, step.to_block(bench.shape, bench.frozen, batch._replace(tokens=tokens)))
    assert not mx.allclose(before, after, atol=1e-3)


def test_blocks_do_not_see_each_other(bench):
    params = _params(bench)
    batch, block = _block(bench)
    alone = batch._replace(anchors=batch.anchors[:, 1:2], tokens=batch.tokens[:, 1:2], labels=batch.labels[:, 1:2])
    together = model.backbone(bench.shape, params, block)[0, 1]
    single = model.backbone(bench.shape, params, step.to_block(bench.shape, bench.frozen, alone))[0, 0]
    assert mx.allclose(together, single, atol=1e-5)


class Lender:
    """A target that only lends."""

    def __init__(self, embed: mx.array) -> None:
        self._embed = embed
        self.spec = SimpleNamespace(hidden_size=embed.shape[1], num_layers=6, vocab_size=embed.shape[0], raw={})

    def raw_embed(self, ids: mx.array) -> mx.array:
        return self._embed[ids]

    def raw_logits(self, hidden: mx.array) -> mx.array:
        return hidden @ self._embed.T


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ({}, "dspark"),
        ({"layers": 2, "kv_heads": 1}, "dspark"),
        ({"rank": 0, "confidence": False}, "dflash"),
        ({"rank": 0, "confidence": False, "logits_start": 1, "block": 5}, "dflash"),
    ],
)
def test_the_exported_file_drafts_what_the_trainer_drafts(make, tmp_path, shape, kind, greedy_sampler):
    bench = make(**shape)
    params = _params(bench)
    origin = export.Origin("toy", 6, "ToyForCausalLM", 128)
    export.write(tmp_path, bench.shape, params, bench.frozen, bench.vocabulary, origin)
    drafter = build(read_checkpoint(tmp_path), Lender(bench.frozen.embed))
    assert drafter.name == kind
    assert drafter.taps == bench.shape.taps
    assert drafter.max_draft == bench.shape.drafts
    _, block = _block(bench, anchors=(9, 12, 20), sequence=3)
    span = bench.store.span(3)
    anchors = bench.store.ids[span][[9, 12, 20]]
    table = mx.array(bench.vocabulary.astype(np.int32))
    wanted = evaluate.chain(bench.shape, params, bench.frozen, table, block, mx.array(anchors)[None])
    for i, at in enumerate((9, 12, 20)):
        context = drafter.new_context()
        drafter.observe(context, mx.array(bench.store.taps[span][:at].astype(np.float32)), 0, [0] * at)
        proposal = drafter.propose(context, int(anchors[i]), drafter.max_draft, greedy_sampler)
        assert proposal.tokens.tolist() == wanted[0, i].tolist()


def test_quantised_files_are_smaller_and_load(make, tmp_path):
    bench = make()
    origin = export.Origin("toy", 6)
    params = _params(bench)
    wide = bench.frozen.embed.shape[1] % export.GROUP
    assert wide  # the toy is too narrow to be packed: it stays in 16 bits, and still loads
    export.write(tmp_path, bench.shape, params, bench.frozen, bench.vocabulary, origin, bits=8, card="# Card\n")
    build(read_checkpoint(tmp_path), Lender(bench.frozen.embed))
    assert (tmp_path / "README.md").read_text() == "# Card\n"


def test_a_full_vocabulary_is_written_in_the_native_layout(make):
    bench = make(draft_vocab=40)
    config = export.config(bench.shape, export.Origin("toy", 6), 16)
    assert config["architectures"] == ["Qwen3DSparkModel"]
    assert config["target_layer_ids"] == [1, 3]
    assert "draft_vocab_size" not in config

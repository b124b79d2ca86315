"""Two rounds of every golden drafter, tensor by tensor, from the stored features: no target runs here."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.drafters.nn.kv_cache import BlockContext
from engine.sampling.sampler import RowSampler
from engine.types import DenseQ, Sampling, SparseQ
from tests.engine.drafters.golden import DRAFTERS, Golden

GREEDY = RowSampler(Sampling(), [0], 384)


def close(ours: Any, theirs: np.ndarray, atol: float = 2e-4, rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(np.array(ours), theirs, atol=atol, rtol=rtol)


@pytest.fixture(params=DRAFTERS)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def feed(golden: Golden, drafter: Any, context: BlockContext, round_: str) -> None:
    features = golden.tensors[f"{round_}.features"]
    drafter.observe(context, features, context.length, [0] * features.shape[0])


def check_context(golden: Golden, drafter: Any, context: BlockContext, round_: str) -> None:
    close(drafter.fuse(golden.tensors[f"{round_}.features"]), golden[f"{round_}.context"])
    assert context.length == int(golden[f"{round_}.start"][0])
    for index, store in enumerate(context.layers):
        k, v = golden[f"{round_}.ctx_k.{index}"], golden[f"{round_}.ctx_v.{index}"]
        rows = min(store.visible, k.shape[1])
        assert rows == min(context.length, k.shape[1])
        first = store.rows - rows
        close(store.k[0, :, first : store.rows], k[:, -rows:])
        close(store.v[0, :, first : store.rows], v[:, -rows:])


def check_block(golden: Golden, drafter: Any, context: BlockContext, round_: str) -> None:
    anchor = int(golden[f"{round_}.anchor"][0])
    ids = golden[f"{round_}.block_ids"]
    assert ids[0] == anchor
    assert set(ids[1:]) == {drafter.config.mask_token_id}
    if f"{round_}.block_embeddings" in golden:
        close(drafter.embed([anchor], len(ids)), golden[f"{round_}.block_embeddings"])
    close(drafter.block([context], [anchor], drafter.max_draft), golden[f"{round_}.block_hidden"])
    hidden = drafter.predicting([context], [anchor], drafter.max_draft)
    base = drafter.base_logits(drafter.raw_head(hidden))
    close(base, golden[f"{round_}.base_logits"])
    proposal = drafter.propose(context, anchor, drafter.max_draft, GREEDY)
    np.testing.assert_array_equal(np.array(proposal.tokens), golden[f"{round_}.draft_tokens"])
    assert proposal.q is None
    if f"{round_}.confidence_logits" in golden:
        expected = 1 / (1 + np.exp(-golden[f"{round_}.confidence_logits"]))
        close(proposal.confidence, expected, atol=3e-5)


def test_two_rounds(golden: Golden) -> None:
    drafter = golden.load()
    context = drafter.new_context()
    for round_ in ("r0", "r1"):
        feed(golden, drafter, context, round_)
        check_context(golden, drafter, context, round_)
        check_block(golden, drafter, context, round_)


def walk(golden: Golden, drafter: Any, context: BlockContext, round_: str) -> tuple[mx.array, list[mx.array]]:
    """Corrected logits and confidence inputs along the greedy chain, as `propose` computes them."""
    anchor = int(golden[f"{round_}.anchor"][0])
    hidden = drafter.predicting([context], [anchor], drafter.max_draft)
    rows: list[mx.array] = []

    class Recorder(RowSampler):
        def draw(self, logits: mx.array, position: int, ids: mx.array | None = None) -> Any:
            rows.append(logits)
            return super().draw(logits, position, ids)

    drafter.propose(context, anchor, drafter.max_draft, Recorder(Sampling(), [0], 384))
    return hidden, rows


@pytest.mark.parametrize("name", [n for n in DRAFTERS if n.startswith("dspark")])
def test_corrected_logits_along_the_chain(name: str) -> None:
    golden = Golden(name)
    drafter = golden.load()
    context = drafter.new_context()
    for round_ in ("r0", "r1"):
        feed(golden, drafter, context, round_)
        hidden, rows = walk(golden, drafter, context, round_)
        close(mx.stack(rows), golden[f"{round_}.corrected_logits"])
        previous = [int(golden[f"{round_}.anchor"][0]), *golden[f"{round_}.draft_tokens"][:-1].tolist()]
        embeds = drafter.markov.embed(mx.array(previous))
        close(drafter.confidence.logits(hidden, embeds), golden[f"{round_}.confidence_logits"], atol=1e-4)


def test_selector_of_dflash2() -> None:
    golden = Golden("dflash2")
    drafter = golden.load()
    context = drafter.new_context()
    for round_ in ("r0", "r1"):
        feed(golden, drafter, context, round_)
        hidden, rows = walk(golden, drafter, context, round_)
        raw = drafter.raw_head(hidden)
        ids = drafter.selector.candidates(raw)
        unary = drafter.base_logits(mx.take_along_axis(raw, ids, axis=-1))
        close(drafter.selector.gates(hidden), golden[f"{round_}.selector_hidden"])
        order = np.argsort(np.array(ids), axis=-1)
        np.testing.assert_array_equal(np.take_along_axis(np.array(ids), order, -1), golden[f"{round_}.candidates"])
        close(np.take_along_axis(np.array(unary), order, -1), golden[f"{round_}.candidate_unary"])
        close(np.take_along_axis(np.array(mx.stack(rows)), order, -1), golden[f"{round_}.candidate_scores"])


class OnPath(RowSampler):
    """Draws nothing: follows a given path, and reports the law as a real draw would."""

    def __init__(self, path: list[int]) -> None:
        super().__init__(Sampling(temperature=1.0), [0], 384)
        self.path = path
        self.at = 0

    def draw(self, logits: mx.array, position: int, ids: mx.array | None = None) -> tuple[mx.array, mx.array | None]:
        _, law = super().draw(logits, position, ids)
        token = self.path[self.at]
        self.at += 1
        return mx.array(token, dtype=mx.int32), law


def dense(q: Any, rows: int, vocab: int) -> np.ndarray:
    if isinstance(q, DenseQ):
        return np.array(q.probs)
    assert isinstance(q, SparseQ)
    out = np.zeros((rows, vocab))
    np.put_along_axis(out, np.array(q.ids), np.array(q.probs), axis=-1)
    return out


def test_q_is_what_was_drawn_from_and_the_first_token_keeps_the_law(golden: Golden) -> None:
    drafter = golden.load()
    context = drafter.new_context()
    feed(golden, drafter, context, "r0")
    path = golden["t1.path"].tolist()
    proposal = drafter.propose(context, int(golden["r0.anchor"][0]), drafter.max_draft, OnPath(path))
    q = dense(proposal.q, len(path), 384)
    close(q, golden["t1.q"], atol=1e-5)
    p = golden["t1.p"]
    close(np.minimum(p[: len(path)], q).sum(-1), golden["t1.expected_accept"], atol=1e-5)
    # The first token: accepted drafts of q, plus the residual where one is refused.
    accepted = np.minimum(p[0], q[0])
    residual = np.maximum(p[0] - q[0], 0)
    law = accepted + (1 - accepted.sum()) * residual / residual.sum()
    close(law, golden["t1.first_token_law"], atol=1e-6)
    close(law, p[0], atol=1e-6)

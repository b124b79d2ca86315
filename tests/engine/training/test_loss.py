"""Loss and gradients of one step against a plain reference, and the arithmetic that makes them cheap."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from engine.training.data import blocks
from engine.training.loop import optimizer, step
from engine.training.model import fastmath, loss, model


def _reference(hidden, head, probs, labels, weights, ce, l1):
    """float64, one row at a time, over the whole draft vocabulary: (loss, d loss / d hidden, accept)."""
    total, grads, accepts = 0.0, np.zeros_like(hidden), []
    share = weights / weights.sum()
    for i, (h, p, y, w) in enumerate(zip(hidden, probs, labels, share, strict=True)):
        logits = head @ h
        e = np.exp(logits - logits.max())
        q = e / e.sum()
        distance = np.abs(q - p).sum()
        total += w * (ce * -np.log(q[y]) + l1 * distance)
        sign = np.sign(q - p)
        dl1 = q * (sign - (sign * q).sum())
        dce = q - np.eye(len(q))[y]
        grads[i] = w * (ce * dce + l1 * dl1) @ head
        accepts.append(1 - distance / 2)
    return total, grads, np.array(accepts)


@pytest.mark.parametrize(("ce", "l1"), [(1.0, 0.0), (0.0, 1.0), (0.1, 0.9)])
@pytest.mark.parametrize("rows", [5, loss.CHUNK + 3])
def test_the_fused_loss_equals_the_reference(ce, l1, rows):
    rng = np.random.default_rng(0)
    vocab, width = 23, 12
    hidden, head = rng.normal(size=(rows, width)), rng.normal(size=(vocab, width))
    logits = rng.normal(size=(rows, vocab)) * 2
    order = np.argsort(-logits, axis=-1)
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = rng.integers(0, vocab, rows)
    weights = rng.uniform(size=rows) * (rng.uniform(size=rows) > 0.2)
    sorted_probs = np.take_along_axis(probs, order, -1)
    parts = (
        order.astype(np.int32),
        sorted_probs.astype(np.float32),
        labels.astype(np.int32),
        weights.astype(np.float32),
    )
    targets = loss.Targets(*(mx.array(x) for x in parts))
    found = loss.fused(mx.array(hidden.astype(np.float32)), mx.array(head.astype(np.float32)), targets, ce, l1)
    value, grads, accepts = _reference(hidden, head, probs, labels, weights, ce, l1)
    assert float(found.loss.item()) == pytest.approx(value, rel=2e-3)
    assert np.allclose(np.array(found.grad), grads, atol=2e-3 * np.abs(grads).max())
    assert np.allclose(np.array(found.accept), accepts, atol=2e-3)
    assert np.array(found.hit).tolist() == ((hidden @ head.T).argmax(-1) == order[:, 0]).tolist()


def test_a_truncated_target_is_the_renormalised_one():
    rng = np.random.default_rng(1)
    hidden, head = rng.normal(size=(4, 6)), rng.normal(size=(9, 6))
    ids = np.argsort(-rng.normal(size=(4, 9)), axis=-1)[:, :3]
    kept = np.sort(rng.dirichlet([1, 1, 1], size=4), axis=-1)[:, ::-1]
    full = np.zeros((4, 9))
    np.put_along_axis(full, ids, kept, -1)
    labels, weights = ids[:, 0], np.ones(4)
    parts = (ids.astype(np.int32), kept.astype(np.float32).copy(), labels.astype(np.int32), weights.astype(np.float32))
    targets = loss.Targets(*(mx.array(x) for x in parts))
    found = loss.fused(mx.array(hidden.astype(np.float32)), mx.array(head.astype(np.float32)), targets, 0.1, 0.9)
    value, grads, _ = _reference(hidden, head, full, labels, weights, 0.1, 0.9)
    assert float(found.loss.item()) == pytest.approx(value, rel=2e-3)
    assert np.allclose(np.array(found.grad), grads, atol=2e-3 * np.abs(grads).max())


def _naive(shape, params, frozen, batch, weights):
    """The same objective without any of the shortcuts: dense logits, mx.softmax, autodiff all the way."""
    block = step.to_block(shape, frozen, batch)
    rows = model.forward(shape, params, block)
    logits = rows.scored @ frozen.head.T
    log_q = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    q = mx.exp(log_q)
    s, a, n, _ = batch.ids.shape
    p = np.zeros((s, a, n, shape.draft_vocab), np.float32)
    np.put_along_axis(p, batch.ids, batch.probs, -1)
    distance = mx.sum(mx.abs(q - mx.array(p)), axis=-1)
    cross = -mx.take_along_axis(log_q, mx.array(batch.labels)[..., None], axis=-1)[..., 0]
    w = mx.array(batch.weights)
    share = w / mx.sum(w)
    accept = mx.stop_gradient(1 - 0.5 * distance)
    c = model.confidence_logits(params, rows)
    bce = mx.logaddexp(mx.array(0.0), c) - c * accept
    return mx.sum(share * (weights.ce * cross + weights.l1 * distance + weights.confidence * bce))


@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_a_whole_step_equal_plain_autodiff(make, layers):
    bench = make(layers=layers)
    params = model.init(bench.shape, bench.start, mx.random.key(0))
    params["confidence"]["proj"] = mx.random.normal(params["confidence"]["proj"].shape) * 0.1
    chosen = blocks.choose(bench.store, bench.members, 3, 0, 0)
    batch = blocks.blocks(bench.store, bench.teacher, chosen, 8, bench.shape.drafts, seed=0, step=0)
    weights = step.Weights(0.1, 0.9, 1.0)
    stats, grads = step.gradients(bench.shape, params, bench.frozen, batch, weights)
    value, wanted = mx.value_and_grad(lambda p: _naive(bench.shape, p, bench.frozen, batch, weights))(params)
    assert float(stats.loss.item()) == pytest.approx(float(value.item()), rel=3e-3)
    for (name, found), (_, expected) in zip(tree_flatten(grads), tree_flatten(wanted), strict=True):
        size = float(mx.max(mx.abs(expected)).item())
        assert mx.allclose(found, expected, atol=5e-3 * size + 1e-6), name


def test_fast_functions_are_close_to_the_real_ones():
    x = mx.linspace(-30, 0, 3001)
    assert float(mx.max(mx.abs(fastmath.exp(x) - mx.exp(x))).item()) < 1e-4
    y = mx.linspace(-20, 20, 4001)
    assert float(mx.max(mx.abs(fastmath.silu(y) - y * mx.sigmoid(y))).item()) < 1e-3
    slope = mx.grad(lambda v: mx.sum(fastmath.silu(v)))(y)
    exact = mx.grad(lambda v: mx.sum(v * mx.sigmoid(v)))(y)
    assert float(mx.max(mx.abs(slope - exact)).item()) < 1e-3


def test_adamw_follows_the_textbook():
    p, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    params = {"w": mx.array(p)}
    moments = optimizer.start(params)
    for n in range(3):
        g = np.array([0.3, -0.1]) * (n + 1)
        params, moments, _ = optimizer.update(
            params, {"w": mx.array(g)}, moments, step=n, rate=0.01, clip=1e9, weight_decay=0.1
        )
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        p = p * (1 - 0.001) - 0.01 * (m / (1 - 0.9 ** (n + 1))) / (np.sqrt(v / (1 - 0.98 ** (n + 1))) + 1e-8)
    assert np.allclose(np.array(params["w"]), p, atol=1e-5)


def test_gradients_are_clipped_by_their_common_norm():
    params = {"a": mx.zeros((2,)), "b": mx.zeros((1,))}
    grads = {"a": mx.array([30.0, 0.0]), "b": mx.array([40.0])}
    _, moments, length = optimizer.update(
        params, grads, optimizer.start(params), step=0, rate=0.1, clip=1.0, weight_decay=0.0
    )
    assert float(length.item()) == pytest.approx(50.0)
    assert moments["m"]["a"].tolist() == pytest.approx([0.06, 0.0])


def test_the_schedule_warms_up_and_ends_at_zero():
    assert optimizer.schedule(0.0, 1.0) < 0.05
    assert optimizer.schedule(0.04, 1.0) == pytest.approx(1.0)
    assert optimizer.schedule(1.0, 1.0) == pytest.approx(0.0)
    assert optimizer.schedule(1.7, 1.0) == pytest.approx(0.0)

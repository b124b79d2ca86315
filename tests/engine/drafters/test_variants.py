"""Variants without golden tensors, against the numpy forward: gates, offsets, sinks, rope styles, windows, log-SNR."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine.drafters.checkpoint import Checkpoint, read_checkpoint
from engine.drafters.load import build
from tests.engine.drafters import synthetic as s
from tests.engine.drafters.reference import block_hidden


def checkpoint(name: str, folder: Path) -> Checkpoint:
    if name == "gguf":
        return read_checkpoint(s.write_gguf(folder / "d.gguf", s.gguf_metadata(), s.gguf_tensors()))
    return read_checkpoint(s.LAYOUTS[name]().save(folder))


NAMES = ["deepspec", "ornith", "nemotron", "zlab", "muse", "specforge", "lfm2", "speculators-dspark", "gguf"]


@pytest.mark.parametrize("chunks", [(1,), (40,), (13, 1, 1, 9, 4), (3, 30)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_block_equals_numpy(name: str, chunks: tuple[int, ...], tmp_path: Path) -> None:
    """The context may arrive in any pieces, and be longer than the window."""
    made = checkpoint(name, tmp_path)
    lender = s.Lender()
    drafter = build(made, lender)
    total = sum(chunks)
    taps = mx.random.normal((total, len(drafter.taps) * s.H), key=mx.random.key(total))
    context, at = drafter.new_context(), 0
    for n in chunks:
        drafter.observe(context, taps[at : at + n], at, [0] * n)
        if n < 10:
            drafter.block([context], [9], 1)  # a block leaves no trace
        at += n
    ours = np.array(drafter.block([context], [5], drafter.max_draft).astype(mx.float32))
    theirs = block_hidden(made.config, made.tensors, taps, 5, lender.table)
    np.testing.assert_allclose(ours, theirs[: len(ours)], atol=2e-4, rtol=1e-3)


def test_a_causal_block_may_be_cut_and_a_bidirectional_one_may_not(tmp_path: Path) -> None:
    taps = mx.random.normal((20, 3 * s.H), key=mx.random.key(1))
    for name, causal in (("nemotron", True), ("deepspec", False)):
        made = checkpoint(name, tmp_path / name)
        drafter = build(made, s.Lender())
        context = drafter.new_context()
        drafter.observe(context, taps, 0, [0] * 20)
        assert drafter.config.causal == causal
        whole = drafter.block([context], [5], drafter.max_draft)
        short = drafter.block([context], [5], 2)
        assert short.shape[0] == (made.config.logits_start + 2 if causal else made.config.block_size)
        rows = np.array(drafter.predicting([context], [5], 2))
        start = made.config.logits_start
        np.testing.assert_allclose(rows, np.array(whole[start : start + 2]), atol=1e-5)


def test_gemma_rotates_only_a_quarter_of_the_pairs(tmp_path: Path) -> None:
    """Proportional rope: the frequencies count the whole head, and the rest of the pairs do not turn."""
    from engine.drafters.nn.attention import Rotary

    rope = checkpoint("deepspec-gemma", tmp_path).config.rope
    x = mx.random.normal((1, 1, 1, 16), key=mx.random.key(0))
    y = np.array(Rotary(rope)(x, (37,)))[0, 0, 0]
    x_ = np.array(x)[0, 0, 0]
    assert rope.rotated == 2
    np.testing.assert_allclose(y[2:8], x_[2:8], atol=1e-6)
    np.testing.assert_allclose(y[10:], x_[10:], atol=1e-6)
    for pair in range(2):
        angle = 37 * 1e6 ** (-2 * pair / 16)
        np.testing.assert_allclose(y[pair], x_[pair] * np.cos(angle) - x_[pair + 8] * np.sin(angle), atol=1e-5)

"""Reference values of the families' original implementations: logits, residual streams and greedy text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.targets.families.dense import MlxTarget
from tests.engine.targets.conftest import GOLDEN, load

NAMES = ["tiny-gemma4", "tiny-qwen3_5", "tiny-nemotron_h", "tiny-lfm2", "tiny-muse_glimmer"]
TOLERANCE = {"atol": 2e-4, "rtol": 1e-4}


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest) -> tuple[MlxTarget, dict[str, Any], dict[str, mx.array]]:
    folder: Path = GOLDEN / request.param
    facts = json.loads((folder / "golden" / "expected.json").read_text())
    return load(folder), facts, mx.load(str(folder / "golden" / "expected.safetensors"))


def test_prompt_and_every_tap(case: tuple[MlxTarget, dict[str, Any], dict[str, mx.array]]) -> None:
    target, facts, expected = case
    layers = target.spec.num_layers
    taps = range(-1, layers)
    state = target.new_state()
    prompt = mx.array([facts["prompt"]], dtype=mx.int32)
    with state.begin(prompt.shape[1]) as round:
        body = target.body(prompt, state, taps)
        round.commit(prompt.shape[1])
    np.testing.assert_allclose(target.logits(body.hidden)[0], expected["prompt_logits"], **TOLERANCE)
    assert body.taps is not None
    streams = mx.split(body.taps[0], layers + 1, axis=-1)
    # The last stored residual stream is after the final norm, so that it compares with `hidden`.
    for layer in taps[:-1]:
        np.testing.assert_allclose(streams[layer + 1], expected[f"hidden.{layer + 1}"], **TOLERANCE)
    np.testing.assert_allclose(body.hidden[0], expected[f"hidden.{layers}"], **TOLERANCE)


@pytest.mark.parametrize("chunk", [40, 7, 1])
def test_greedy_continuation(case: tuple[MlxTarget, dict[str, Any], dict[str, mx.array]], chunk: int) -> None:
    target, facts, expected = case
    state = target.new_state()
    prompt: list[int] = facts["prompt"]
    hidden = None
    for i in range(0, len(prompt), chunk):
        part = prompt[i : i + chunk]
        with state.begin(len(part), record=False) as round:
            hidden = target.body(mx.array([part]), state).hidden
            round.commit(len(part))
    tokens: list[int] = []
    for step in range(len(facts["greedy"])):
        assert hidden is not None
        logits = target.logits(hidden[:, -1:])[0, 0]
        np.testing.assert_allclose(logits, expected["greedy_logits"][step], atol=5e-4, rtol=1e-4)
        tokens.append(int(mx.argmax(logits)))
        with state.begin(1) as round:
            hidden = target.body(mx.array([tokens[-1:]]), state).hidden
            round.commit(1)
    assert tokens == facts["greedy"]

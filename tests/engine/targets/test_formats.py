"""Checkpoints of every format load and answer; packed keys and values; ternary packs; replaced config entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakes import Run, ScriptedDrafter
from mlx.utils import tree_flatten

from engine.drafters.chain import Chain
from engine.errors import UnsupportedModel, UsageError
from engine.kv_cache.quantized import QuantKV
from engine.kv_cache.sliding_window import WindowKV
from engine.targets.families.dense import MlxTarget
from engine.targets.load import load_target
from tests.engine.targets.conftest import Tiny
from tests.engine.targets.feeding import distance, feed, prefilled, same, tokens_of
from tests.tools.tiny_configs import TEXT

Folder = Callable[..., Path]
FORMATS: dict[str, dict[str, Any]] = {"bf16": {"dtype": "bfloat16"}, "8-bit": {"bits": 8}, "4-bit": {"bits": 4}}
WIDE = {"head_dim": 32}
"""The smallest heads whose keys can be quantised."""


def speculated(target: MlxTarget, prompt: list[int], right: list[int]) -> list[int]:
    """Greedy tokens with drafts of which every third is wrong."""

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(prompt)
        return [(t + (at + i) % 3 // 2) % 288 for i, t in enumerate(right[at : at + k])]

    return Run(target, prompt, Chain("s", (ScriptedDrafter(script),)), max_tokens=len(right), cap=4).output


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("family", [f for f in TEXT if not f.startswith("bonsai")])
def test_loads_and_answers_in_float32_on_cpu(tiny_folder: Folder, family: str, stored: str) -> None:
    loaded = load_target(tiny_folder(family, **FORMATS[stored]))
    target = loaded.target
    assert isinstance(target, MlxTarget)
    floats = {w.dtype for _, w in tree_flatten(target.model.parameters()) if mx.issubdtype(w.dtype, mx.floating)}
    assert floats == {mx.float32}
    prompt = loaded.tokenizer.encode("def add(a, b):\n")
    assert prompt
    plain = Run(target, prompt, max_tokens=8, stop_ids=frozenset()).output
    assert len(plain) == 8
    assert speculated(target, prompt, plain) == plain
    assert target.spec.quantization.startswith(stored) or (stored, target.spec.quantization) == ("bf16", "bfloat16")


@pytest.mark.parametrize("family", ["bonsai_ternary", "bonsai_hadamard"])
def test_ternary_packs_answer(tiny_folder: Folder, family: str) -> None:
    """Codes 0, 1, 2 with bias -scale, plain or behind a Hadamard rotation: layers of Qwen3.5."""
    target = load_target(tiny_folder(family)).target
    prompt = tokens_of(20)
    plain = Run(target, prompt, max_tokens=6, stop_ids=frozenset()).output
    assert speculated(target, prompt, plain) == plain


def test_one_bit_packs_are_refused_with_the_reason(tiny_folder: Folder, tmp_path: Path) -> None:
    source = tiny_folder("bonsai_ternary")
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization"] = {"bits": 1, "group_size": 128}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=r"1-bit weights.*ternary"):
        load_target(tmp_path)


# Keys and values in few bits ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[8, 4], ids=["kv8", "kv4"])
def packed(request: pytest.FixtureRequest, tiny_folder: Folder) -> MlxTarget:
    target = load_target(tiny_folder("llama", changes=WIDE), kv_bits=request.param).target
    assert isinstance(target, MlxTarget)
    return target


def test_quantised_state_rolls_back_exactly(packed: MlxTarget) -> None:
    start = prefilled(packed, tokens_of(20)).snapshot()
    drafts = tokens_of(6, seed=1)
    cold = same(packed, start)
    for keep in range(7):
        warm = same(packed, start)
        feed(packed, warm, drafts, keep)
        if keep:
            feed(packed, cold, drafts[keep - 1 : keep])
        for width in (1, 2, 5):
            a, b = same(packed, warm.snapshot()), same(packed, cold.snapshot())
            after = tokens_of(width, seed=2)
            assert distance([feed(packed, a, after)], [feed(packed, b, after)]) == 0.0


def test_speculation_under_quantised_state_equals_plain_under_it(packed: MlxTarget) -> None:
    prompt = tokens_of(20)
    plain = Run(packed, prompt, max_tokens=24, stop_ids=frozenset()).output
    assert speculated(packed, prompt, plain) == plain


def test_quantised_rows_of_a_batch(packed: MlxTarget) -> None:
    singles = [prefilled(packed, tokens_of(n)) for n in (5, 300, 20)]
    batch = prefilled(packed, tokens_of(5))
    for n in (300, 20):
        batch.extend(prefilled(packed, tokens_of(n)))
    for keeps in ((3, 1, 0), (2, 3, 3)):
        rows = [tokens_of(3, seed=b + sum(keeps)) for b in range(3)]
        with batch.begin(3) as round:
            logits = packed.logits(packed.body(mx.array(rows), batch).hidden)
            round.commit(keeps)
        for b, single in enumerate(singles):
            assert distance([feed(packed, single, rows[b], keeps[b])], [logits[b]]) < 1e-4


def test_quantised_state_is_smaller_and_has_its_own_fingerprint(tiny_folder: Folder) -> None:
    folder = tiny_folder("llama", changes=WIDE)
    whole, eight, four = (load_target(folder, kv_bits=bits).target for bits in (0, 8, 4))
    assert whole.spec.kv_bytes_per_token == 4 * 2 * 2 * 32 * 4
    assert eight.spec.kv_bytes_per_token < whole.spec.kv_bytes_per_token // 2
    assert four.spec.kv_bytes_per_token < eight.spec.kv_bytes_per_token
    assert len({t.spec.fingerprint for t in (whole, eight, four)}) == 3
    assert all(isinstance(layer, QuantKV) for layer in eight.new_state().layers)


def test_hybrids_quantise_their_attention_layers_only(tiny_folder: Folder) -> None:
    target = load_target(tiny_folder("qwen3_5"), kv_bits=8).target
    kinds = [type(layer).__name__ for layer in target.new_state().layers]
    assert kinds == ["RecurrentState"] * 3 + ["QuantKV"]
    prompt = tokens_of(20)
    plain = Run(target, prompt, max_tokens=12, stop_ids=frozenset()).output
    assert speculated(target, prompt, plain) == plain


@pytest.mark.parametrize(("family", "bits", "words"), [("llama", 8, "heads of 16"), ("gemma4_text", 8, "of others")])
def test_what_cannot_be_quantised_is_refused_at_load(tiny_folder: Folder, family: str, bits: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_target(tiny_folder(family), kv_bits=bits)


def test_odd_bits_are_refused(tiny_folder: Folder) -> None:
    with pytest.raises(UsageError, match="use 4, 6, 8"):
        load_target(tiny_folder("llama", changes=WIDE), kv_bits=3)


# Replaced entries of the config ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen3_5", "lfm2"])
def test_a_replaced_rope_base_reaches_the_attention(tiny_folder: Folder, tiny: Tiny, family: str) -> None:
    entry = {"rope_theta": 50.0}
    if family == "qwen3_5":
        stored = TEXT[family]["text_config"]["rope_parameters"]
        entry = {"rope_parameters": {**stored, "rope_theta": 50.0}}
    changed = load_target(tiny_folder(family), overrides=entry).target
    assert isinstance(changed, MlxTarget)
    prompt = tokens_of(20)
    ours = feed(changed, changed.new_state(), prompt)
    assert distance([ours], [feed(tiny(family), tiny(family).new_state(), prompt)]) > 1e-3
    assert changed.spec.fingerprint != load_target(tiny_folder(family)).target.spec.fingerprint


def test_a_replaced_window_reaches_the_state(tiny_folder: Folder) -> None:
    target = load_target(tiny_folder("muse_glimmer"), overrides={"sliding_window": 8}).target
    windows = {layer.window for layer in target.new_state().layers if isinstance(layer, WindowKV)}
    assert windows == {8}


def test_experts_are_known_for_the_policies(tiny_folder: Folder) -> None:
    for family in ("qwen3_moe", "qwen3_5_moe", "qwen3_next", "nemotron_h", "lfm2_moe"):
        assert load_target(tiny_folder(family)).target.spec.experts == (2, 4), family
    assert load_target(tiny_folder("llama")).target.spec.experts is None


def test_depth_can_be_measured_with_packed_keys(packed: MlxTarget) -> None:
    """Calibration inflates the memory with random rows of the layer's own kind."""
    from fakes import make_sequence

    from engine.calibration.controlled_run import _deepen
    from engine.decoding.prefill import Prefill

    sequence = make_sequence(packed, tokens_of(20), max_tokens=4)
    prefill = Prefill(packed, sequence, None, 64)
    prefill.start()
    prefill.step()
    _deepen(prefill, tokens_of(100, seed=3))
    assert prefill.state.lengths == [120]
    assert all(layer.lengths == [120] for layer in prefill.state.layers)
    assert feed(packed, prefill.state, [5]).shape == (1, packed.spec.vocab_size)

"""The estimate before loading is what loading takes; a window that does not fit is cut, weights are refused."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from engine.errors import MemoryShort, human_bytes
from engine.targets.load import load_target
from engine.targets.memory_estimate import Estimate, StateCost, estimate, fit
from tests.tools.make_tiny_models import make
from tests.tools.tiny_configs import TEXT

GB = 2**30


@pytest.mark.parametrize("family", [f for f in TEXT if not f.startswith("bonsai")])
def test_the_estimate_is_what_loading_takes(tmp_path: Path, family: str) -> None:
    """Weights, growing and fixed state, for every kind of layer, without a byte of weights read."""
    folder = make(family, tmp_path / family)
    config = json.loads((folder / "config.json").read_text())
    before = mx.get_active_memory()
    guess = estimate(folder, config)
    assert mx.get_active_memory() - before < 64 * 1024
    target = load_target(folder).target
    assert guess.weights == target.spec.weight_bytes
    assert guess.state.per_token == target.spec.kv_bytes_per_token
    tokens = 300
    state = target.new_state()
    with state.begin(tokens, record=False) as round:
        target.body(mx.zeros((1, tokens), dtype=mx.int32), state)
        round.commit(tokens)
    held = state.nbytes
    # Buffers are allocated in steps of 256 tokens.
    assert guess.state.bytes(tokens) <= held * 1.01
    assert guess.state.bytes(512 + 256) >= held * 0.5


def test_a_model_that_does_not_exist_yet_costs_nothing_to_estimate(tmp_path: Path) -> None:
    """A 27B-sized hybrid: seconds and no memory."""
    config = json.loads(json.dumps(TEXT["qwen3_5"]))
    config["text_config"] |= {
        "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 248320, "linear_num_value_heads": 48,
        "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    }  # fmt: skip
    before = mx.get_active_memory()
    guess = estimate(tmp_path, config)
    assert mx.get_active_memory() - before < 2**20
    assert guess.state.per_token == 16 * 2 * 8 * 128 * 4
    assert 48 * 48 * 128 * 128 * 4 < guess.state.fixed < 48 * 48 * 128 * 128 * 4 * 1.1
    assert 90 * GB < guess.weights < 120 * GB


NEED = Estimate(weights=4 * GB, state=StateCost(per_token=100_000, fixed=100 * 2**20), scratch=0, context=131_072)


def test_what_fits_is_left_alone() -> None:
    found = fit(NEED, available=32 * GB)
    assert (found.context, found.note) == (131_072, "")
    assert fit(NEED, wanted=8192, available=6 * GB).context == 8192


def test_a_window_that_does_not_fit_is_shortened_and_said() -> None:
    found = fit(NEED, available=8 * GB)
    assert found.context % 1024 == 0
    assert NEED.bytes(found.context) <= 8 * GB < NEED.bytes(found.context + 1024)
    assert f"{found.context:,} tokens instead of 131,072" in found.note


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MemoryShort, match=r"needs 4\.\d GB and this machine has 4\.3 GB"):
        fit(NEED, available=4 * GB)


def test_the_drafter_counts() -> None:
    from dataclasses import replace

    with_drafter = replace(NEED, drafter=GB)
    assert fit(with_drafter, available=8 * GB).context < fit(NEED, available=8 * GB).context


def test_sizes_for_people() -> None:
    """Decimal, like disks and hubs: a folder and what it takes in memory are said in one unit."""
    sizes = (870_000, 1_200_000, 18e6, 320 * 2**20, 1.8e9)
    assert [human_bytes(n) for n in sizes] == ["870 kB", "1.2 MB", "18 MB", "336 MB", "1.8 GB"]


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import backend

    folder = make("llama", tmp_path / "m")
    monkeypatch.setattr(backend, "memory_bytes", lambda: 2**20)
    monkeypatch.setattr("mlx_lm.utils.load_model", lambda *a, **k: pytest.fail("weights were read"))
    with pytest.raises(MemoryShort, match="choose a smaller"):
        load_target(folder)


def test_a_short_memory_shortens_the_window_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine import backend

    folder = make("llama", tmp_path / "m")
    need = estimate(folder, json.loads((folder / "config.json").read_text()))
    monkeypatch.setattr(backend, "memory_bytes", lambda: int(need.bytes(2500) / 0.9))
    loaded = load_target(folder)
    assert loaded.target.spec.context == 2048
    assert "2,048 tokens instead of 4,096" in loaded.notes[0]
    assert load_target(folder, context=1000).target.spec.context == 1000


def test_an_unloaded_model_is_gone(tmp_path: Path) -> None:
    """After a swap nothing of the old model stays (O47)."""
    import gc
    import weakref

    from engine.load import open_engine
    from engine.types import Request

    folder = make("qwen3_5", tmp_path / "m")
    engine = open_engine(folder)
    assert engine.submit(Request([5, 6, 7], max_tokens=4)).text() is not None
    model = weakref.ref(engine.target.model)  # type: ignore[attr-defined]
    engine.close()
    del engine
    gc.collect()
    assert model() is None

"""The load-time probe passes every family, and finds what would be wrong in each of its ways."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.kv_cache import sliding_window
from engine.kv_cache.base import LayerState, State
from engine.kv_cache.recurrent import RecurrentState
from engine.targets import self_check as probes
from engine.targets.base import Body
from engine.targets.families.dense import MlxTarget
from engine.targets.families.gemma4 import Gemma4Target
from engine.targets.self_check import cached_probe, probe
from tests.engine.targets.conftest import Tiny
from tests.tools.tiny_configs import TEXT


@pytest.mark.parametrize("family", [f for f in TEXT if not f.startswith("bonsai")])
def test_every_family_passes(tiny: Tiny, family: str) -> None:
    verdict = probe(tiny(family))
    assert verdict.offer == "all", verdict.reason
    assert set(verdict.deviations) == {"P0", "P1", "P2", "P3", "P4", "P5"}
    assert max(verdict.deviations.values()) < verdict.limit / 100


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_weights_that_are_no_numbers_are_refused(tiny: Tiny, value: float) -> None:
    target = tiny("qwen3")
    weight = target.model.model.layers[1].self_attn.o_proj.weight
    spoilt = mx.array(weight)
    spoilt[0, 0] = value
    target.model.model.layers[1].self_attn.o_proj.weight = spoilt
    verdict = probe(target)
    assert verdict.offer == "refused"
    assert "not a number" in verdict.reason
    assert "download it again" in verdict.reason


class Uncapped(Gemma4Target):
    def logits(self, hidden: mx.array) -> mx.array:
        return self.raw_logits(hidden)


def test_a_forgotten_output_transform_is_refused(tiny: Tiny) -> None:
    good = tiny("gemma4_text")
    verdict = probe(Uncapped(good.model, good.spec))
    assert verdict.offer == "refused"
    assert "P1" in verdict.reason


class ShiftedTaps(MlxTarget):
    def body(self, ids: mx.array, state: State, taps: Sequence[int] = (), embeddings: mx.array | None = None) -> Body:
        return super().body(ids, state, [max(0, t - 1) for t in taps], embeddings)


def test_taps_of_the_wrong_layer_leave_lookup(tiny: Tiny) -> None:
    good = tiny("llama")
    verdict = probe(ShiftedTaps(good.model, good.spec))
    assert verdict.offer == "lookup"
    assert "learned drafters are off" in verdict.reason


class Unrecorded(MlxTarget):
    """Recurrent layers whose mixers say nothing to their state."""

    def text_model(self) -> Any:
        return self.model.language_model

    def layer_state(self, cache: Any) -> LayerState:
        return RecurrentState(2) if type(cache).__name__ == "ArraysCache" else super().layer_state(cache)

    def run(self, ids: mx.array, caches: list[Any], embeddings: mx.array | None) -> mx.array:
        return self.inner()(ids, cache=[getattr(c, "port", c) for c in caches])


def test_a_state_that_cannot_be_undone_leaves_plain_decoding(tiny: Tiny) -> None:
    good = tiny("qwen3_5")
    verdict = probe(Unrecorded(good.model, good.spec))
    assert verdict.offer == "plain"
    assert "not recorded" in verdict.reason


def test_a_ring_that_drops_the_wrong_rows_leaves_plain_decoding(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(sliding_window.WindowKV):
        def commit(self, keep: Sequence[int]) -> None:
            super().commit([k + 1 if k > 1 else k for k in keep])

    monkeypatch.setattr(probes, "WindowKV", Forgetful)
    good = tiny("muse_glimmer")
    monkeypatch.setattr(good, "new_state", lambda: State([Forgetful(16)]))
    assert probes._window(probes._Subject(good))[0] == float("inf")


def test_the_verdict_is_kept_by_fingerprint(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tiny("llama")
    target = MlxTarget(good.model, probes_spec(good, "abc"))
    first = cached_probe(target, tmp_path / "probes")
    calls: list[int] = []
    monkeypatch.setattr(probes, "probe", lambda t: calls.append(1) or first)
    assert cached_probe(target, tmp_path / "probes") == first
    assert not calls
    other = MlxTarget(good.model, probes_spec(good, "def"))
    cached_probe(other, tmp_path / "probes")
    assert calls == [1]
    (tmp_path / "probes" / next(iter((tmp_path / "probes").iterdir())).name).write_text("{broken")
    cached_probe(target, tmp_path / "probes")


def test_a_cache_that_cannot_be_written_is_no_error(tiny: Tiny, tmp_path: Path) -> None:
    good = tiny("llama")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cached_probe(MlxTarget(good.model, probes_spec(good, "abc")), blocked / "probes").offer == "all"


def probes_spec(target: MlxTarget, fingerprint: str) -> Any:
    from dataclasses import replace

    return replace(target.spec, fingerprint=fingerprint)

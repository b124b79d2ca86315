"""What the load-time probe found decides what an engine offers; settings about memory and config reach the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import load
from engine.config import Config
from engine.errors import UnknownDrafter, UnsupportedModel, UsageError
from engine.kv_cache.quantized import QuantKV
from engine.targets.self_check import Verdict
from engine.types import Request
from tests.tools.make_tiny_models import make


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("llama", tmp_path_factory.mktemp("llama") / "llama", changes={"head_dim": 32})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def opened(folder: Path, **kwargs: Any) -> Any:
    return load.load(str(folder), fetch=False, cache_bytes=0, **kwargs)


def judged(monkeypatch: pytest.MonkeyPatch, offer: Any) -> None:
    monkeypatch.setattr(
        "engine.load.attach_drafters.cached_probe", lambda *_: Verdict(offer, "It does not roll back (P4).")
    )


def test_a_model_that_passes_offers_everything_and_the_verdict_is_kept(folder: Path, home: Path) -> None:
    with opened(folder) as engine:
        assert set(engine.chains) == {"none", "lookup"}
        assert engine.drafter == "lookup"
    assert len(list((home / "cache" / "probes").iterdir())) == 1


def test_a_refused_model_is_not_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, "refused")
    with pytest.raises(UnsupportedModel, match="roll back"):
        opened(folder)


def test_plain_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, "plain")
    with opened(folder) as engine:
        assert engine.drafter == "none"
        assert set(engine.chains) == {"none"}
        assert {d.name: d.reason for d in engine.drafters if not d.available} == {
            "lookup": "It does not roll back (P4)."
        }
        tokens = engine.submit(Request([5, 6, 7], max_tokens=3))
        assert [type(e).__name__ for e in tokens][-1] == "Finished"
    with pytest.raises(UnknownDrafter, match=r"roll back.*--drafter none"):
        opened(folder, drafter="lookup")


def test_lookup_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, "lookup")
    with opened(folder) as engine:
        assert engine.drafter == "lookup"
    with pytest.raises(UnknownDrafter, match="--drafter lookup"):
        opened(folder, drafter="dspark")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("bogus", "no drafter 'bogus'"), ("lokup", "Did you mean lookup?"), ("lookup+dflash", "No dflash drafter")],
)
def test_a_drafter_that_cannot_be_is_refused_before_anything_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, said: str
) -> None:
    monkeypatch.setattr(
        "engine.targets.load.load_target", lambda *_, **__: pytest.fail("gigabytes were read for nothing")
    )
    with pytest.raises(UnknownDrafter, match=said):
        opened(folder, drafter=wanted)


def test_lookup_is_off_for_experts_and_can_be_turned_on(tmp_path: Path) -> None:
    folder = make("qwen3_moe", tmp_path / "moe")
    with opened(folder) as engine:
        assert engine.drafter == "none"
        assert "lookup" in engine.chains
    with opened(folder, drafter="lookup") as engine:
        assert engine.drafter == "lookup"


def test_settings_reach_the_target(folder: Path) -> None:
    config = Config(kv_bits=8, context=1000, override=("rope_theta=77", "note=text"))
    wanted = {"kv_bits": 8, "context": 1000, "overrides": {"rope_theta": 77, "note": "text"}}
    assert config.loading() == {**wanted, "drafter_window": Config().drafter_window, "pin_weights": False}
    with opened(folder, **config.loading()) as engine:
        assert engine.spec.context == 1000
        assert engine.config["rope_theta"] == 77
        assert all(isinstance(layer, QuantKV) for layer in engine.target.new_state().layers)


@pytest.mark.parametrize("entry", ["rope_theta", "=3", ""])
def test_an_override_without_value_is_refused(entry: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE"):
        Config(override=(entry,)).loading()

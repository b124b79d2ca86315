"""A drafter kind is two files and one table, a family one file, a row, a card: what a newcomer touches, done here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakes import Run

from engine.drafters import registry
from engine.drafters.chain import Chain
from engine.drafters.load import load_drafter
from engine.hub.catalog import parse
from engine.targets import families
from engine.targets.load import load_target
from tests.engine.drafters.golden import GOLDEN, Golden, golden_target

KIND = '''
from engine.drafters.base import DrafterKind
from engine.drafters.block import BlockDrafter, Drawn
from engine.drafters.nn.tensors import block_tensors


class Toy(BlockDrafter):
    """Every row drafts for itself."""

    def draw(self, hidden, raw, pendings, draws):
        draws.all(self.base_logits(raw))
        return Drawn()


KIND = DrafterKind("toy", Toy, block_tensors)
'''
LAYOUT = """
from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.fields import Fields, plain_rope, tap_ids
from engine.drafters.checkpoint.layouts import qwen3_body
from engine.drafters.checkpoint.layouts.packaging import Packaging


def read(config):
    fields = Fields(config)
    sizes = {**qwen3_body.sizes(fields), **qwen3_body.block(fields), "layers": qwen3_body.rules(fields, config, {})}
    taps, rope = tap_ids(fields, "target_layer_ids"), plain_rope(fields, config, sizes["head_dim"])
    return DrafterConfig(packaging="Toy", kind="toy", logits_start=1, taps=taps, rope=rope, **sizes)


PACKAGING = Packaging("Toy", lambda config: config.get("toy") is True, read)
"""
FAMILY = '''
from engine.targets.families.dense import MlxTarget


class Toy(MlxTarget):
    """Where everything lies as usual."""


def adapt(model, spec):
    return Toy(model, spec)
'''
CARD = """
id = "toy-1b"
target = "someone/toy-1b"
family = "toy_family"
mode = "toy"

[drafters]
toy = "someone/toy-1b-drafter"
"""


def module(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def toy_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, "toy_kind", KIND, monkeypatch)
    module(tmp_path, "toy_layout", LAYOUT, monkeypatch)
    # The third file: two rows of engine/drafters/registry.py.
    monkeypatch.setitem(registry.KINDS, "toy", "toy_kind")
    monkeypatch.setattr(registry, "LAYOUTS", ["toy_layout", *registry.LAYOUTS])


@pytest.mark.usefixtures("toy_kind")
def test_a_new_kind_of_drafter_is_three_files(tmp_path: Path) -> None:
    golden = Golden("dflash-zlab")
    folder = tmp_path / "drafter"
    folder.mkdir()
    config: dict[str, Any] = json.loads((golden.folder / "config.json").read_text())
    nested = config.pop("dflash_config")
    (folder / "config.json").write_text(json.dumps({**config, **nested, "architectures": ["Toy"], "toy": True}))
    (folder / "model.safetensors").write_bytes((golden.folder / "model.safetensors").read_bytes())

    drafter = load_drafter(folder, golden_target(golden.target), bits=0)
    assert (type(drafter).__name__, drafter.name) == ("Toy", "toy")
    prompt, plain = golden.json["prompts"][0], golden.json["plain_greedy"][0]
    run = Run(golden_target(golden.target), prompt, Chain("toy", (drafter,)), max_tokens=24)
    assert run.output == plain[:24]
    assert any(round.accepted for round in run.rounds), "what is drafted is the golden drafter's"

    assert "toy" in registry.names()
    (tmp_path / "toy.toml").write_text(CARD)
    assert parse(tmp_path / "toy.toml").drafters_in_order()[0] == ("toy", "someone/toy-1b-drafter")


def test_a_new_family_is_a_file_a_row_and_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_family.py").write_text(FAMILY)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    monkeypatch.setitem(families.FAMILIES, "qwen3", "toy_family")
    (tmp_path / "card.toml").write_text(CARD.split("mode")[0])
    assert parse(tmp_path / "card.toml").family == "toy_family"

    target = load_target(GOLDEN / "targets" / "tiny-qwen3").target
    assert type(target).__name__ == "Toy"
    golden = Golden("dflash-zlab")
    prompt, plain = golden.json["prompts"][0], golden.json["plain_greedy"][0]
    assert Run(target, prompt, Chain("none"), max_tokens=16).output == plain[:16]
    assert mx.array(target.raw_embed(mx.array([1]))).shape == (1, target.spec.hidden_size)
    sys.modules.pop("engine.targets.families.toy_family", None)

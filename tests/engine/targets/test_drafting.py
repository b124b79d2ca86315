"""Each family with each kind of drafter at several draft lengths: the greedy tokens are those of plain decoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FixedIdle, Run, ScriptedDrafter

from engine.decoding.loop import Loop
from engine.diagnostics.self_test.tiny_configs import token_id
from engine.drafters.chain import Chain
from engine.drafters.load import load_drafter
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.targets.families.dense import MlxTarget
from tests.cases import thinned
from tests.engine.targets.conftest import Tiny
from tests.engine.targets.feeding import tokens_of
from tests.tools.make_tiny_drafters import make_drafter

FAMILIES = [
    "llama", "qwen3_moe", "gemma4_text", "gemma4_dense", "qwen3_5", "qwen3_5_moe", "qwen3_next", "nemotron_h", "lfm2",
    "lfm2_moe", "muse_glimmer", "granitemoehybrid",
]  # fmt: skip
CAPS = (1, 4, 7)
TOKENS = 20
PROMPT = tokens_of(60)
"""Past the window of 16, and with so many ids that lookup finds something to copy."""


@pytest.fixture(scope="module")
def plain(tiny: Tiny) -> Callable[[str], list[int]]:
    known: dict[str, list[int]] = {}

    def get(family: str) -> list[int]:
        if family not in known:
            known[family] = Run(tiny(family), PROMPT, max_tokens=TOKENS).output
        return known[family]

    return get


def scripted(target: MlxTarget, right: list[int], folder: Path) -> Any:
    """The plain continuation with every fourth token wrong: full and partial accepts of every size."""

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(PROMPT)
        return [(t + (at + i) % 4 // 3) % 288 for i, t in enumerate(right[at : at + k])]

    return ScriptedDrafter(script, taps=(0, target.spec.num_layers - 1))


def lookup(target: MlxTarget, right: list[int], folder: Path) -> Any:
    return Lookup(LookupSettings(min_n=1))


def learned(kind: str) -> Callable[..., Any]:
    def build(target: MlxTarget, right: list[int], folder: Path) -> Any:
        spec = target.spec
        sizes = {"hidden": spec.hidden_size, "layers": spec.num_layers, "vocab": spec.vocab_size}
        return load_drafter(make_drafter(kind, folder / kind, **sizes, mask_id=token_id("<|mask|>")), target)

    return build


DRAFTERS = {"scripted": scripted, "lookup": lookup, "dspark": learned("dspark"), "dflash": learned("dflash")}


@pytest.mark.parametrize(("family", "drafter"), thinned(FAMILIES, DRAFTERS))
def test_greedy_tokens_are_those_of_plain_decoding(
    tiny: Tiny, plain: Callable[[str], list[int]], tmp_path: Path, family: str, drafter: str
) -> None:
    target, expected = tiny(family), plain(family)
    part = DRAFTERS[drafter](target, expected, tmp_path)
    drafted = accepted = 0
    for cap in CAPS:
        run = Run(target, PROMPT, Chain(drafter, (part,)), max_tokens=TOKENS, cap=cap)
        assert run.output == expected, f"cap {cap}"
        assert run.state.lengths == [len(PROMPT) + TOKENS - 1]
        drafted += run.sequence.usage.drafted
        accepted += run.sequence.usage.accepted
    hasty = Loop(target)
    hasty.idle = FixedIdle(1.1)  # pyright: ignore[reportAttributeAccessIssue]
    run = Run(target, PROMPT, Chain(drafter, (part,)), max_tokens=TOKENS, cap=CAPS[1], loop=hasty)
    assert run.output == expected, "without waiting for who is silent"
    assert run.state.lengths == [len(PROMPT) + TOKENS - 1]
    assert drafted, "the drafter never proposed"
    assert drafter == "lookup" or accepted < drafted, "no round was undone"
    assert drafter != "scripted" or accepted

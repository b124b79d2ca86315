"""Drafters change speed, never text; they evaluate nothing unless asked to look at their confidence."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from fakes import Run
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.chain import Chain
from engine.drafters.checkpoint import Checkpoint, read_checkpoint
from engine.drafters.load import build, load_drafter
from engine.drafters.nn.heads import cut_by_threshold, cut_by_value
from engine.sampling.sampler import RowSampler
from engine.types import Sampling
from tests.cases import thinned
from tests.engine.drafters import synthetic as s
from tests.engine.drafters.golden import DRAFTERS, GOLDEN, Golden, golden_target


def shuffled(checkpoint: Checkpoint, seed: int) -> Checkpoint:
    """The same file with the entries of every float tensor permuted."""
    rng = np.random.default_rng(seed)
    tensors = {
        n: mx.array(rng.permutation(np.array(v).ravel()).reshape(v.shape)) if n != "d2t" else v
        for n, v in checkpoint.tensors.items()
    }
    return checkpoint._replace(tensors=tensors)


@pytest.mark.parametrize(
    "name", ["dspark-qwen3", "dspark-qwen3-rnn", "dspark-speculators", "dflash-zlab-swa", "dflash2"]
)
def test_permuted_weights_change_no_token(name: str) -> None:
    golden = Golden(name)
    target = golden_target(golden.target)
    drafter = build(shuffled(read_checkpoint(golden.folder), 1), target)
    run = Run(target, golden.json["prompts"][2], Chain("x", (drafter,)), max_tokens=24)
    assert run.output == golden.json["plain_greedy"][2][:24]
    assert sum(len(r.drafted) for r in run.rounds) > 60


def test_seeded_text_is_the_same_with_and_without_drafter() -> None:
    golden = Golden("dspark-qwen3")
    target = golden_target(golden.target)
    sampling = Sampling(temperature=0.8, top_p=0.95, seed=5)
    prompt = golden.json["prompts"][1]
    plain = Run(target, prompt, max_tokens=24, sampling=sampling).output
    for name in ("dspark-qwen3", "dspark-speculators", "dflash-zlab", "dflash2"):
        drafter = Golden(name).load(target)
        run = Run(target, prompt, Chain("x", (drafter,)), max_tokens=24, sampling=sampling)
        assert run.output == plain
        assert run.loop.evaluations == len(run.rounds)


PENALISED = Sampling(
    temperature=0.8,
    top_p=0.95,
    repetition_penalty=1.2,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    logit_bias={101: 2.0, 32: -1.0, 7: -100.0},
    seed=5,
)


@pytest.mark.parametrize(("name", "law"), thinned(DRAFTERS, [PENALISED, replace(PENALISED, temperature=0.0)]))
def test_with_penalties_the_text_is_the_same_for_every_drafter_and_draft_length(name: str, law: Sampling) -> None:
    golden = Golden(name)
    target = golden_target(golden.target)
    prompt = golden.json["prompts"][1]
    plain = Run(target, prompt, max_tokens=20, sampling=law).output
    assert len(set(plain)) > 4
    drafter = golden.load(target)
    for cap in (1, 4):
        run = Run(target, prompt, Chain("x", (drafter,)), max_tokens=20, sampling=law, cap=cap)
        assert run.output == plain
        assert run.loop.evaluations == len(run.rounds)


@pytest.mark.parametrize("name", ["dspark-qwen3", "dflash-zlab", "dflash2", "dspark-speculators"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_propose_evaluates_nothing(name: str, temperature: float) -> None:
    golden = Golden(name)
    drafter = golden.load()
    context = drafter.new_context()
    drafter.observe(context, golden.tensors["r0.features"], 0, [0] * 24)
    sampler = RowSampler(Sampling(temperature=temperature), [0], 384)
    drafter.propose(context, 7, drafter.max_draft, sampler)
    mx.eval(context.arrays())
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    proposal = drafter.propose(context, 7, drafter.max_draft, sampler)
    # Constants that the graph refers to are made at once; results are not.
    lazily = mx.get_peak_memory() - before
    mx.eval(proposal.tokens)
    assert lazily < (mx.get_peak_memory() - before) / 4


# Truncation by confidence ---------------------------------------------------------------------------------------------

CHANCES = st.lists(st.floats(0.01, 0.99), max_size=8)


@given(CHANCES, st.floats(0.0, 1.0))
def test_threshold_stops_before_the_first_doubt(chances: list[float], threshold: float) -> None:
    keep = cut_by_threshold(chances, threshold)
    assert all(c >= threshold for c in chances[:keep])
    assert keep == len(chances) or chances[keep] < threshold


@given(CHANCES, st.floats(0.1, 10.0), st.floats(0.0, 5.0))
def test_value_decides_from_the_past_only(chances: list[float], fixed: float, each: float) -> None:
    """Whether draft i is kept must not change with what is estimated for later drafts."""

    def costs(k: int) -> float:
        return fixed + each * k

    keep = cut_by_value(chances, costs)
    for i in range(keep + 1, len(chances) + 1):
        assert cut_by_value(chances[:i], costs) == keep
    for i in range(keep + 1):
        assert cut_by_value(chances[:i], costs) == i
    rates = [(1 + sum(np.prod(chances[: j + 1]) for j in range(k))) / costs(k) for k in range(keep + 1)]
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(rates))


def test_value_on_a_flat_and_on_a_steep_curve() -> None:
    chances = [0.9, 0.8, 0.3, 0.9]
    assert cut_by_value(chances, lambda k: 10.0) == 4
    assert cut_by_value(chances, lambda k: 1.0 + k) == 0
    assert cut_by_value(chances, lambda k: 4.0 + k) == 2


def test_cost_model_replaces_the_threshold() -> None:
    golden = Golden("dspark-qwen3")
    target = golden_target(golden.target)
    prompt, plain = golden.json["prompts"][0], golden.json["plain_greedy"][0]
    lengths: dict[str, float] = {}
    for label, costs in (("free", lambda k: 10.0), ("steep", lambda k: 1.0 + 2.0 * k), ("usual", lambda k: 4.0 + k)):
        drafter = golden.load(target, threshold=0.5)
        drafter.costs = costs
        run = Run(target, prompt, Chain("x", (drafter,)), max_tokens=32)
        assert run.output == plain[:32]
        lengths[label] = sum(len(r.drafted) for r in run.rounds) / len(run.rounds)
    assert lengths["steep"] < lengths["usual"] < lengths["free"]


def test_confidence_is_off_by_default_and_reported(tmp_path: Path) -> None:
    drafter = load_drafter(s.deepspec().save(tmp_path), s.Lender())
    assert drafter.threshold == 0.0
    context = drafter.new_context()
    proposal = drafter.propose(context, 3, 4, RowSampler(Sampling(), [0], s.V))
    assert len(proposal) == 4
    assert proposal.confidence is not None
    assert proposal.confidence.shape == (4,)


def test_confidence_temperatures_divide_the_logit(tmp_path: Path) -> None:
    made = s.ornith()
    hot = load_drafter(made.save(tmp_path / "a"), s.Lender())
    del made.config["confidence_temperatures"]
    plain = load_drafter(made.save(tmp_path / "b"), s.Lender())
    values: list[np.ndarray] = []
    for drafter in (hot, plain):
        proposal = drafter.propose(drafter.new_context(), 3, 7, RowSampler(Sampling(), [0], s.V))
        c = np.array(proposal.confidence)
        values.append(np.log(c / (1 - c)))
    np.testing.assert_allclose(
        values[0] * np.array([1.1, 1.0, 0.9, 0.9, 0.8, 0.8, 0.8]), values[1], rtol=1e-3, atol=1e-4
    )


# Reports of other programs, as tests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("flat", (16, 10000.0)),
        ("nested", (16, 10000.0)),
        ("both", (16, 10000.0)),
        ("different", (16, 10000.0)),
        ("null on top", (16, 10000.0)),
    ],
)
def test_o24_block_size_and_rope_base_in_either_place(place: str, expected: Any, tmp_path: Path) -> None:
    made = s.zlab()
    nested, rope = made.config["dflash_config"], made.config.pop("rope_parameters")
    size = made.config.pop("block_size")
    if place in ("flat", "both", "different"):
        made.config |= {"block_size": size if place != "different" else 4, "rope_theta": 10000.0}
    if place != "flat":
        nested["block_size"] = size
        made.config["rope_parameters"] = rope
    if place == "different":
        made.config["rope_theta"] = 5.0
    if place == "null on top":
        made.config |= {"block_size": None, "rope_theta": None}
    config = read_checkpoint(made.save(tmp_path)).config
    assert (config.block_size, config.rope.theta) == expected


def test_o25_fields_inherited_from_the_target_are_not_honoured(tmp_path: Path) -> None:
    """The poisoned copy must draft exactly as the clean one."""
    taps = mx.random.normal((9, 3 * s.H), key=mx.random.key(1))
    rows: list[np.ndarray] = []
    for name in ("deepspec", "stock-with-noise"):
        drafter = load_drafter(s.LAYOUTS[name]().save(tmp_path / name), s.Lender())
        context = drafter.new_context()
        drafter.observe(context, taps, 0, [0] * 9)
        rows.append(np.array(drafter.block([context], [3], 7)))
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(("tokens", "start"), [(7, 1), (8, 0)])
def test_o26_the_first_prediction_comes_from_the_right_slot(tokens: int, start: int, tmp_path: Path) -> None:
    """Slot i of this head says word i, whatever it sees: the drafts name the slots that were read."""
    made = s.speculators(tokens=tokens, draft_vocab=None)
    lender = s.Lender()
    drafter = load_drafter(made.save(tmp_path), lender)
    drafter.block = lambda context, pending, k: mx.eye(8, s.H)  # type: ignore[method-assign]
    lender.raw_logits = lambda hidden: 100.0 * hidden @ mx.eye(s.H, s.V)  # type: ignore[method-assign]
    proposal = drafter.propose(drafter.new_context(), 3, 99, RowSampler(Sampling(), [0], s.V))
    assert proposal.tokens.tolist() == list(range(start, 8))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_o27_small_heads_in_any_number_format_still_draft(dtype: mx.Dtype, tmp_path: Path) -> None:
    made = s.deepspec()
    for name in made.tensors:
        if name.startswith(("markov", "confidence")):
            made.tensors[name] = made.tensors[name].astype(dtype)
    drafter = load_drafter(made.save(tmp_path), s.Lender(), threshold=1e-6)
    context = drafter.new_context()
    for at in range(10):
        drafter.observe(context, mx.random.normal((1, 3 * s.H)), at, [0])
        assert len(drafter.propose(context, 3, 7, RowSampler(Sampling(), [0], s.V))) > 0


def test_o27_integers_in_a_small_head_are_refused_by_name(tmp_path: Path) -> None:
    from engine.errors import DrafterRefused

    made = s.deepspec()
    name = "markov_head.markov_w2.weight"
    made.tensors[name] = mx.zeros(made.tensors[name].shape, dtype=mx.int8)
    with pytest.raises(DrafterRefused, match="markov_w2.weight is stored as int8"):
        load_drafter(made.save(tmp_path), s.Lender())


def test_o28_a_draft_vocabulary_equal_to_the_full_one_needs_no_table(tmp_path: Path) -> None:
    drafter = load_drafter(s.minicpm().save(tmp_path), s.Lender())
    proposal = drafter.propose(drafter.new_context(), 3, 7, RowSampler(Sampling(), [0], s.V))
    assert max(proposal.tokens.tolist()) < s.V


def test_a_head_with_padding_rows_stays_in_the_vocabulary(tmp_path: Path) -> None:
    """The drafter's table may be padded beyond the target's columns; its ids must not be."""
    made = s.deepspec()
    lender = s.Lender(vocab=50)
    drafter = load_drafter(made.save(tmp_path), lender)
    assert drafter.raw_head(mx.zeros((2, s.H))).shape == (2, 50)


def test_golden_folders_hold_no_code() -> None:
    assert not list(GOLDEN.rglob("*.py"))

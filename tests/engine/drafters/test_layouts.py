"""Every published layout loads to the right description; every mutation is refused with the right sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from fakes import Run

from engine.drafters.chain import Chain
from engine.drafters.checkpoint import read_checkpoint
from engine.drafters.checkpoint.config import LayerRule
from engine.drafters.checkpoint.nvfp4 import unpack
from engine.drafters.dflash import DFlash
from engine.drafters.dspark import DSpark
from engine.drafters.load import load_drafter
from engine.errors import DrafterRefused, WeightsDamaged, WeightsMissing
from engine.sampling.sampler import RowSampler
from engine.types import Sampling
from tests.engine.drafters import synthetic as s
from tests.engine.drafters.golden import Golden, TableLender, golden_target

FULL = LayerRule(None, False)
EXPECTED: dict[str, dict[str, Any]] = {
    "deepspec": {"kind": "dspark", "logits_start": 0, "max_draft": 7, "layers": (FULL, FULL)},
    "deepspec-gemma": {"backbone": "gemma4", "head_dim": 16, "num_kv_heads": 1, "k_eq_v": True, "softcap": 30.0},
    "minicpm": {"draft_vocab_size": None, "logits_start": 0, "max_draft": 7},
    "stock-with-noise": {"gated_query": False, "offset_norms": False, "logits_start": 0},
    "ornith": {"gated_query": True, "offset_norms": True, "max_draft": 7},
    "nemotron": {"logits_start": 1, "max_draft": 7, "layers": (LayerRule(16, True),) * 2},
    "nemotron-nvfp4": {"logits_start": 1, "max_draft": 7},
    "zlab": {"kind": "dflash", "max_draft": 15, "layers": (LayerRule(16, True), FULL)},
    "dflash2": {"kind": "dflash", "max_draft": 7, "layers": (LayerRule(16, False),) * 2, "output_multiplier": 0.2},
    "muse": {"kind": "dflash", "max_draft": 15, "layers": (LayerRule(16, False),) * 2},
    "speculators-dspark": {"logits_start": 0, "max_draft": 8, "draft_vocab_size": 24},
    "speculators-dflash": {"kind": "dflash", "logits_start": 1, "max_draft": 7},
    "speculators-dflash-reduced": {"kind": "dflash", "draft_vocab_size": 24},
    "speculators-dflash2": {"kind": "dflash", "max_draft": 7},
    "specforge": {"kind": "dspark", "logits_start": 0, "max_draft": 7},
    "lfm2": {"kind": "dspark", "logits_start": 0, "max_draft": 9},
}


def rounds(drafter: Any, temperature: float = 0.0) -> list[list[int]]:
    """Drafts of three rounds on random features; ids must stay in the target's vocabulary."""
    sampler = RowSampler(Sampling(temperature=temperature), [0], s.V)
    context = drafter.new_context()
    out: list[list[int]] = []
    for n in (20, 3, 1):
        taps = mx.random.normal((n, len(drafter.taps) * s.H), key=mx.random.key(n))
        drafter.observe(context, taps, context.length, [0] * n)
        sampler.round += 1
        proposal = drafter.propose(context, 5, drafter.max_draft, sampler)
        assert len(proposal) == drafter.max_draft
        out.append(proposal.tokens.tolist())
    assert all(0 <= t < s.V for row in out for t in row)
    return out


@pytest.mark.parametrize("name", s.LAYOUTS)
def test_layout_loads(name: str, tmp_path: Path) -> None:
    drafter = load_drafter(s.LAYOUTS[name]().save(tmp_path), s.Lender())
    assert drafter.taps == tuple(s.TAPS)
    for attribute, value in EXPECTED[name].items():
        assert getattr(drafter.config, attribute) == value, attribute
    assert isinstance(drafter, DSpark if drafter.config.kind == "dspark" else DFlash)
    rounds(drafter)
    rounds(drafter, temperature=1.0)


def test_rope_of_each_lineage(tmp_path: Path) -> None:
    rope = {name: read_checkpoint(make().save(tmp_path / name)).config.rope for name, make in s.LAYOUTS.items()}
    assert rope["lfm2"].interleaved
    assert not rope["deepspec"].interleaved
    assert rope["ornith"].dims == 2 and rope["ornith"].theta == 1e7
    assert rope["stock-with-noise"].dims == s.DIM
    assert rope["deepspec-gemma"].rotated == 2
    assert rope["specforge"].yarn is not None
    assert rope["deepspec"].yarn is None


@pytest.mark.parametrize(("tokens", "block", "start"), [(6, 7, 1), (7, 8, 1), (8, 8, 0), (15, 15, 0)])
def test_speculators_row_convention_from_the_declared_count(
    tokens: int, block: int, start: int, tmp_path: Path
) -> None:
    made = s.speculators(tokens=tokens, block=block)
    assert read_checkpoint(made.save(tmp_path)).config.logits_start == start


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        ({"sample_from_anchor": True}, 0),
        ({"sample_from_anchor": False}, 1),
        ({"dspark_bonus_anchor": True}, 1),
        ({}, 1),
    ],
)
def test_speculators_row_convention_from_flags(flags: dict[str, bool], start: int, tmp_path: Path) -> None:
    made = s.speculators(tokens=None)
    made.config |= flags
    config = read_checkpoint(made.save(tmp_path)).config
    assert config.logits_start == start
    assert bool(config.notes) == (not flags)


def test_reduced_vocabulary_drafts_only_its_words(tmp_path: Path) -> None:
    made = s.speculators()
    words = {int(i + d) for i, d in enumerate(made.tensors["d2t"].tolist())}
    drafter = load_drafter(made.save(tmp_path), s.Lender())
    for temperature in (0.0, 1.0):
        assert {t for row in rounds(drafter, temperature) for t in row} <= words


def test_both_packagings_of_one_drafter_agree() -> None:
    """The speculators copy of a golden drafter counts taps from one, and names words by reduced ids plus an offset."""
    native, packed = Golden("dspark-qwen3"), Golden("dspark-speculators")
    drafter = packed.load()
    assert native.load().taps == drafter.taps
    words = np.array(drafter._draft_ids)
    np.testing.assert_array_equal(words[packed["r0.draft_ids_reduced"]], packed["r0.draft_tokens"])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"model_type": "gemma4", "text_config": {"final_logit_softcapping": 30.0}}, 30.0),
        ({"model_type": "gemma4_text", "final_logit_softcapping": 15.0}, 15.0),
        # A saturated cap would make all large logits equal: this family multiplies first, and the raw head does not.
        ({"model_type": "muse_glimmer", "final_logit_softcapping": 20.0}, None),
        ({}, None),
    ],
)
def test_the_borrowed_head_is_capped_only_where_it_is_the_heads_own(
    raw: dict[str, Any], expected: float | None, tmp_path: Path
) -> None:
    drafter = load_drafter(s.zlab().save(tmp_path), s.Lender(raw=raw))
    assert drafter.config.softcap == expected


@pytest.mark.parametrize("layout", ["zlab", "speculators-dflash"])
@pytest.mark.parametrize(
    ("family", "stated", "expected"),
    [
        ("gemma4_text", None, s.H**0.5),
        ("gemma3_text", None, s.H**0.5),
        ("gemma4_text", 1.0, 1.0),
        ("muse_glimmer", None, None),
        ("qwen3", None, None),
    ],
)
def test_a_dflash_reads_the_rows_of_a_gemma_s_table_scaled(
    layout: str, family: str, stated: float | None, expected: float | None, tmp_path: Path
) -> None:
    made = s.LAYOUTS[layout]()
    made.tensors.pop("embed_tokens.weight", None)
    if stated is not None:
        made.config.setdefault("dflash_config", {})["input_embedding_scale"] = stated
    lender = s.Lender(raw={"model_type": family})
    drafter = load_drafter(made.save(tmp_path), lender, bits=0)
    assert drafter.config.embed_scale == expected
    rows = drafter.embed([5], drafter.config.block_size)
    assert mx.allclose(rows[0], lender.raw_embed(mx.array([5]))[0] * (expected or 1.0))


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("layout", ["deepspec", "specforge", "lfm2"])
def test_a_markov_head_decides_and_not_the_label(layout: str, silent: bool, tmp_path: Path) -> None:
    """Published under DFlash's name, in one file even without a word about the head."""
    made = s.LAYOUTS[layout]()
    right = load_drafter(made.save(tmp_path / "right"), s.Lender())
    made.config["architectures"] = ["DFlashDraftModel"]
    if silent and layout == "deepspec":
        del made.config["markov_rank"]
    drafter = load_drafter(made.save(tmp_path / "wrong"), s.Lender())
    assert isinstance(drafter, DSpark) and drafter.config.markov_rank == s.RANK
    assert rounds(drafter) == rounds(right)


# Refusals -------------------------------------------------------------------------------------------------------------

Change = Callable[[s.Layout], Any]


def drop(*names: str) -> Change:
    return lambda made: [made.config.pop(n, None) for n in names]


def put(**values: Any) -> Change:
    return lambda made: made.config.update(values)


def nest(**values: Any) -> Change:
    return lambda made: made.config["dflash_config"].update(values)


def unnest(*names: str) -> Change:
    return lambda made: [made.config["dflash_config"].pop(n, None) for n in names]


def lose(*names: str) -> Change:
    return lambda made: [made.tensors.pop(n) for n in names]


def add(name: str, *shape: int) -> Change:
    return lambda made: made.tensors.update({name: mx.zeros(shape)})


REFUSED: list[tuple[str, Change, str]] = [
    ("speculators-dspark", put(speculators_model_type="eagle3"), "algorithm 'eagle3'.*lookup"),
    ("speculators-dspark", drop("transformer_layer_config"), "no transformer_layer_config"),
    ("speculators-dspark", drop("aux_hidden_state_layer_ids"), "lacks aux_hidden_state_layer_ids"),
    ("speculators-dspark", drop("mask_token_id"), "lacks mask_token_id"),
    ("speculators-dspark", lose("d2t"), "draft vocabulary of 24 words, but the file has no d2t"),
    ("speculators-dspark", drop("draft_vocab_size"), "has a d2t table, but its config gives no draft_vocab_size"),
    ("speculators-dspark", lose("lm_head.weight"), "no output matrix of its own"),
    ("speculators-dspark", lambda m: m.tensors.update(d2t=m.tensors["d2t"] + 60), "d2t table points to ids"),
    ("speculators-dflash2", lambda m: m.config["dflash_config"].pop("selector_rank"), "lacks selector_rank.*DFlash 1"),
    (
        "deepspec",
        lambda m: (m.config.pop("block_size"), m.config.update(dspark_layers=2)),
        "whole model with a drafter",
    ),
    ("deepspec", put(model_type="mamba2"), "Unsupported drafter family 'mamba2'"),
    ("deepspec", drop("mask_token_id", "target_layer_ids"), "lacks mask_token_id, target_layer_ids"),
    ("deepspec", put(rope_parameters=None), "lacks rope_theta"),
    ("deepspec", put(hidden_size="wide"), "hidden_size = 'wide', which is not a number"),
    ("deepspec", put(markov_head_type="transformer"), "Markov head is of type 'transformer'"),
    ("deepspec", put(projector_type="domino"), "projector_type 'domino' is not supported"),
    ("deepspec", put(target_layer_ids=[3, 1, 4]), "not strictly ascending"),
    ("deepspec", put(target_layer_ids=[-2, 1, 4]), "not strictly ascending from -1"),
    ("deepspec", put(target_layer_ids=[]), "empty or not a list"),
    ("deepspec", put(layer_types=["full_attention", "linear_attention"]), "layer of type 'linear_attention'"),
    ("deepspec", put(num_target_layers=48), "fits a target of 48 layers, but the model has 6"),
    (
        "deepspec",
        put(num_target_layers=None, target_layer_ids=[1, 3, 9]),
        "reads layer 9, but the model's last one is 5",
    ),
    ("deepspec", put(target_layer_ids=[1, 3]), r"fc.weight is \[32, 96\], not \[32, 64\]"),
    ("deepspec", put(vocab_size=40), "knows 40 words, but the model 64"),
    ("deepspec", put(mask_token_id=64), "mask token 64 is not in its vocabulary"),
    ("deepspec", put(markov_rank=0), "unexpected markov_head.markov_w1.weight"),
    ("deepspec", put(markov_rank=8), r"markov_w1.weight is \[64, 4\], not \[64, 8\]"),
    (
        "deepspec",
        lose("norm.weight", "layers.1.mlp.up_proj.weight"),
        "missing layers.1.mlp.up_proj.weight, norm.weight",
    ),
    ("deepspec", add("layers.0.self_attn.gate.weight", 4, 4), "unexpected layers.0.self_attn.gate.weight"),
    ("deepspec", lose("confidence_head.proj.bias"), "missing confidence_head.proj.bias"),
    ("deepspec-gemma", put(hidden_size_per_layer_input=8), "experts or per-layer inputs"),
    ("deepspec-gemma", put(attention_k_eq_v=False), "missing layers.0.self_attn.v_proj.weight"),
    ("zlab", put(markov_rank=4), "missing markov_head"),
    ("zlab", drop("block_size"), "names no block_size"),
    ("zlab", put(sliding_window=None), "sliding layers but no sliding_window"),
    ("zlab", put(architectures=["LlamaForCausalLM"], dflash_config=None), "no dspark or dflash drafter.*Llama"),
    ("zlab", put(block_size=1), "leaves nothing to draft"),
    ("dflash2", unnest("selector_top_k", "conv_group_size"), "lacks selector_top_k, conv_group_size"),
    ("dflash2", nest(projector_type="domino"), "projector_type 'domino'"),
    ("muse", lose("encoder.fc.weight"), "missing fc.weight"),
    ("nemotron-nvfp4", lose("layers.0.mlp.up_proj.weight_scale"), "up_proj.weight is stored as uint8"),
]


@pytest.mark.parametrize(("name", "change", "sentence"), REFUSED, ids=[f"{n}: {t[:40]}" for n, _, t in REFUSED])
def test_mutated_layout_is_refused(name: str, change: Change, sentence: str, tmp_path: Path) -> None:
    made = s.LAYOUTS[name]()
    change(made)
    with pytest.raises(DrafterRefused, match=sentence) as caught:
        load_drafter(made.save(tmp_path), s.Lender())
    assert "\n" not in str(caught.value)


def test_strict_false_ignores_what_the_config_does_not_explain(tmp_path: Path) -> None:
    made = s.deepspec()
    made.tensors["extra.weight"] = mx.zeros((2, 2))
    made.save(tmp_path)
    with pytest.raises(DrafterRefused, match="unexpected extra.weight"):
        load_drafter(tmp_path, s.Lender())
    rounds(load_drafter(tmp_path, s.Lender(), strict=False))


def test_long_lists_show_eight_names(tmp_path: Path) -> None:
    made = s.deepspec()
    for name in [n for n in made.tensors if n.startswith("layers.")]:
        del made.tensors[name]
    with pytest.raises(DrafterRefused, match="and 14 more"):
        load_drafter(made.save(tmp_path), s.Lender())


def test_files_that_are_not_there_or_cut_short(tmp_path: Path) -> None:
    with pytest.raises(WeightsMissing, match="no config.json"):
        load_drafter(tmp_path, s.Lender())
    s.deepspec().save(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsDamaged, match="damaged or was cut short"):
        load_drafter(tmp_path, s.Lender())
    weights.unlink()
    with pytest.raises(WeightsMissing, match="holds no safetensors"):
        load_drafter(tmp_path, s.Lender())
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"fc.weight": "part-2.safetensors"}}')
    with pytest.raises(WeightsMissing, match=re.escape("part-2.safetensors")):
        load_drafter(tmp_path, s.Lender())


def test_shards_and_a_common_prefix(tmp_path: Path) -> None:
    made = s.deepspec()
    expected = rounds(load_drafter(made.save(tmp_path / "whole"), s.Lender()))
    parts = tmp_path / "parts"
    s.Layout(made.config, {}).save(parts)
    (parts / "model.safetensors").unlink()
    for i in range(2):
        half = {f"model.{n}": v for j, (n, v) in enumerate(made.tensors.items()) if j % 2 == i}
        mx.save_safetensors(str(parts / f"model-{i}.safetensors"), half)
    assert rounds(load_drafter(parts, s.Lender())) == expected


def test_checkpoint_code_is_never_run(tmp_path: Path) -> None:
    made = s.deepspec()
    made.config["auto_map"] = {"AutoModel": "modeling.Boom"}
    made.save(tmp_path)
    (tmp_path / "modeling.py").write_text("raise SystemExit('executed')")
    rounds(load_drafter(tmp_path, s.Lender()))


# GGUF -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, 1, 30, 8, 2, 3], ids=["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"])
def test_gguf_loads(kind: int, tmp_path: Path) -> None:
    path = s.write_gguf(tmp_path / "d.gguf", s.gguf_metadata(), s.gguf_tensors(), kind)
    checkpoint = read_checkpoint(f"gguf:{path}")
    config = checkpoint.config
    near = {2: 0.3, 3: 0.3, 8: 2e-2}.get(kind, 8e-3)
    assert (config.block_size, config.taps, config.logits_start) == (4, tuple(s.TAPS), 0)
    for name, value in s.gguf_tensors().items():
        np.testing.assert_allclose(
            np.array(checkpoint.tensors[name].astype(mx.float32)), np.array(value), rtol=8e-3, atol=near
        )
    rounds(load_drafter(path, s.Lender()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"general.architecture": "llama"}, "architecture 'llama', not a drafter"),
        ({"dspark.dspark.min_log_snr": 10.0}, "range 10.0 to 10.0 is not one"),
        ({"dspark.dspark.block_size": None}, "lacks block_size"),
        ({"dspark.dspark.target_layers": [4, 3]}, "not strictly ascending"),
    ],
)
def test_gguf_is_refused(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    metadata = {k: v for k, v in {**s.gguf_metadata(), **change}.items() if v is not None}
    with pytest.raises(DrafterRefused, match=sentence):
        load_drafter(s.write_gguf(tmp_path / "d.gguf", metadata, s.gguf_tensors()), s.Lender())


@pytest.mark.parametrize(
    ("layout", "kind", "start"), [("minicpm", "dspark", 0), ("zlab", "dflash", 1), ("dflash2", "dflash", 1)]
)
def test_llama_cpp_s_own_gguf_drafts_as_the_folder(layout: str, kind: str, start: int, tmp_path: Path) -> None:
    made = s.LAYOUTS[layout]()
    made.config["is_causal"] = False
    path = s.write_gguf(tmp_path / "d.gguf", s.llama_cpp_metadata(made), made.tensors, named=s.llama_cpp_name)
    drafter = load_drafter(path, s.Lender())
    assert (drafter.config.kind, drafter.config.logits_start, drafter.taps) == (kind, start, tuple(s.TAPS))
    folder = load_drafter(made.save(tmp_path / "folder"), s.Lender())
    assert drafter.config.layers == folder.config.layers
    assert rounds(drafter) == rounds(folder)
    packed = s.write_gguf(tmp_path / "q.gguf", s.llama_cpp_metadata(made), made.tensors, 8, named=s.llama_cpp_name)
    rounds(load_drafter(packed, s.Lender()))


def test_llama_cpp_s_reduced_vocabulary_is_ids(tmp_path: Path) -> None:
    made = s.LAYOUTS["speculators-dspark"]()
    offsets = made.tensors["d2t"]
    ids = offsets + mx.arange(offsets.shape[0])
    tensors = {**made.tensors, "d2t": ids.astype(mx.float32)}
    tensors = {name: value for name, value in tensors.items() if name != "t2d" and "verifier" not in name}
    metadata = s.llama_cpp_metadata(s.LAYOUTS["minicpm"]()) | {"dflash.block_size": made.config["block_size"]}
    name = lambda n: n if n == "d2t" else s.llama_cpp_name(n)  # noqa: E731
    path = s.write_gguf(tmp_path / "d.gguf", metadata, tensors, named=name)
    assert mx.array_equal(read_checkpoint(path).tensors["d2t"], offsets)


def test_gguf_cut_short(tmp_path: Path) -> None:
    path = s.write_gguf(tmp_path / "d.gguf", s.gguf_metadata(), s.gguf_tensors())
    whole = path.read_bytes()
    for length in (2, 40, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsDamaged, match="not a readable GGUF"):
            load_drafter(path, s.Lender())
    with pytest.raises(WeightsDamaged):
        load_drafter(s.write_gguf(path, s.gguf_metadata(), s.gguf_tensors(), version=1), s.Lender())
    with pytest.raises(DrafterRefused, match="There is no file"):
        load_drafter(tmp_path / "absent.gguf", s.Lender())


def test_a_folder_with_one_gguf_and_log_snr_in_a_config(tmp_path: Path) -> None:
    """The same drafter as a GGUF in a folder, and converted to safetensors, drafts the same."""
    (tmp_path / "g").mkdir()
    s.write_gguf(tmp_path / "g" / "d.gguf", s.gguf_metadata(), s.gguf_tensors())
    made = s.deepspec()
    made.tensors = s.gguf_tensors()
    made.config |= {"block_size": 4, "log_snr_conditioning": True, "min_log_snr": -10.0, "max_log_snr": 10.0}
    expected = rounds(load_drafter(tmp_path / "g", s.Lender()))
    assert rounds(load_drafter(made.save(tmp_path / "s"), s.Lender())) == expected
    made.config["max_log_snr"] = None
    with pytest.raises(DrafterRefused, match="range -10.0 to None is not one"):
        load_drafter(made.save(tmp_path / "s"), s.Lender())


# Number formats -------------------------------------------------------------------------------------------------------


def test_nvfp4_values() -> None:
    """Against a table worked out by hand."""
    packed = mx.array(np.arange(16, dtype=np.uint8).reshape(1, 16) * 16 + np.arange(16, dtype=np.uint8)[::-1])
    scale = mx.to_fp8(mx.array([[0.5, 2.0]], dtype=mx.float32))
    out = unpack("w.weight", {"w.weight": packed, "w.weight_scale": scale, "w.weight_scale_2": mx.array(0.25)})
    magnitude = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    table = [*magnitude, *(-m for m in magnitude)]
    nibbles = [n for i in range(16) for n in (15 - i, i)]
    factors = [0.5 * 0.25] * 16 + [2.0 * 0.25] * 16
    expected = [table[n] * f for n, f in zip(nibbles, factors, strict=True)]
    np.testing.assert_allclose(np.array(out.astype(mx.float32))[0], expected)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantising_at_load_is_close_and_keeps_the_text(bits: int) -> None:
    golden = Golden("dspark-qwen3")
    target = golden_target("tiny-qwen3")
    drafter = load_drafter(golden.folder, target, bits=bits)
    context = drafter.new_context()
    drafter.observe(context, golden.tensors["r0.features"], 0, [0] * 24)
    error = mx.abs(drafter.block([context], [int(golden["r0.anchor"][0])], 7) - golden.tensors["r0.block_hidden"])
    assert 0.0 < float(error.mean()) < (0.5 if bits == 4 else 0.05)
    run = Run(target, golden.json["prompts"][0], Chain("x", (drafter,)), max_tokens=24)
    assert run.output == golden.json["plain_greedy"][0][:24]
    assert sum(r.accepted for r in run.rounds) > 0


def test_mlx_quantised_files_load(tmp_path: Path) -> None:
    golden = Golden("dspark-qwen3")
    tensors = mx.load(str(golden.folder / "model.safetensors"))
    packed: dict[str, mx.array] = {}
    for name, value in tensors.items():
        if name.endswith("proj.weight") and value.shape[-1] % 64 == 0:
            w, scales, biases = mx.quantize(value, group_size=64, bits=8)
            stem = name.removesuffix(".weight")
            packed |= {name: w, f"{stem}.scales": scales, f"{stem}.biases": biases}
        else:
            packed[name] = value
    config = json.loads((golden.folder / "config.json").read_text())
    made = s.Layout({**config, "quantization": {"group_size": 64, "bits": 8}}, packed)
    drafter = load_drafter(made.save(tmp_path), TableLender("tiny-qwen3"))
    context = drafter.new_context()
    drafter.observe(context, golden.tensors["r0.features"], 0, [0] * 24)
    hidden = drafter.block([context], [int(golden["r0.anchor"][0])], 7)
    assert float(mx.abs(hidden - golden.tensors["r0.block_hidden"]).max()) < 0.2
    del made.config["quantization"]
    with pytest.raises(DrafterRefused, match="quantised, but the config does not say how"):
        load_drafter(made.save(tmp_path), TableLender("tiny-qwen3"))


SENSELESS: list[dict[str, Any]] = [
    {"num_hidden_layers": 100_000},
    {"num_hidden_layers": 10**12},
    {"hidden_size": 0},
    {"num_attention_heads": 3},
    {"block_size": 10**12},
    {"block_size": -1},
    {"vocab_size": 10**12},
    {"rms_norm_eps": "small"},
    {"target_layer_ids": ["first"]},
    {"architectures": 3},
    {"final_logit_softcapping": "x"},
    {"quantization": {"bits": "few"}},
    {"num_target_layers": "six"},
]


@pytest.mark.parametrize("change", SENSELESS, ids=str)
@pytest.mark.parametrize("name", ["deepspec", "zlab", "dflash2"])
def test_numbers_that_no_drafter_has_are_refused(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    made = s.LAYOUTS[name]()
    nested = made.config.get("dflash_config", {})
    for key, value in change.items():
        (nested if key in nested else made.config)[key] = value
    with pytest.raises(DrafterRefused) as caught:
        load_drafter(made.save(tmp_path), s.Lender())
    assert "\n" not in str(caught.value)

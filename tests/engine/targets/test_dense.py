"""The generic family: models whose logits go through more than a matrix, and models that it does not know."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from fakes import Run, ScriptedDrafter

from engine.diagnostics.self_test.tiny_models import randomize
from engine.drafters.chain import Chain
from engine.errors import UnsupportedModel
from engine.targets.facts import describe_config
from engine.targets.families import adapter
from engine.targets.families.dense import MlxTarget
from engine.targets.self_check import probe
from tests.engine.targets.feeding import tokens_of

BASE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": True,
}  # fmt: skip
SLIDING = {"sliding_window": 16, "sliding_window_pattern": 2}
MODELS: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "phi3": {"tie_word_embeddings": False},
    "smollm3": {},
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 16.0},
    "gemma3_text": SLIDING,
    "cohere": {"layer_norm_eps": 1e-5, "logit_scale": 0.1},
    "cohere2": {**SLIDING, "layer_norm_eps": 1e-5, "attention_bias": False, "layer_norm_bias": False},
    "granite": {
        "logits_scaling": 8.0, "attention_multiplier": 0.25, "embedding_multiplier": 12.0, "residual_multiplier": 0.2,
        "attention_bias": False, "mlp_bias": False,
    },
    "minicpm": {"dim_model_base": 32, "scale_depth": 1.4, "scale_emb": 12},
    "olmo3": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip


def build(model_type: str, extra: dict[str, Any]) -> MlxTarget:
    config = {**BASE, **extra, "model_type": model_type}
    library = importlib.import_module(f"mlx_lm.models.{model_type}")
    mx.random.seed(0)
    model = library.Model(library.ModelArgs.from_dict(dict(config)))
    randomize(model)
    return adapter(model_type)(model, replace(describe_config(config), num_layers=len(model.layers)))


@pytest.mark.parametrize("model_type", MODELS)
def test_speculation_equals_plain_whatever_the_output_goes_through(model_type: str) -> None:
    target = build(model_type, MODELS[model_type])
    verdict = probe(target)
    assert verdict.offer == "all", verdict.reason
    prompt = tokens_of(20)
    plain = Run(target, prompt, max_tokens=16).output

    def script(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(prompt)
        return [(t + (at + i) % 4 // 3) % 288 for i, t in enumerate(plain[at : at + k])]

    chain = Chain("s", (ScriptedDrafter(script, taps=(0, 3)),))
    assert Run(target, prompt, chain, max_tokens=16, cap=5).output == plain


def test_raw_logits_are_the_bare_matrix() -> None:
    """A drafter that borrows the head must not get the target's multiplier or cap."""
    target = build("granite", MODELS["granite"])
    hidden = mx.random.normal((1, 2, 64))
    assert mx.allclose(target.raw_logits(hidden), target.logits(hidden) * 8.0, rtol=1e-5).item()


@pytest.mark.parametrize(
    ("model_type", "extra"),
    [
        ("gpt2", {"n_ctx": 512, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 512,
                  "layer_norm_epsilon": 1e-5}),
        ("rwkv7", {"decay_low_rank_dim": 8, "gate_low_rank_dim": 8, "a_low_rank_dim": 8, "v_low_rank_dim": 8,
                   "norm_eps": 1e-5, "hidden_act": "sqrelu", "norm_bias": True, "num_heads": 4}),
    ],
)  # fmt: skip
def test_an_unknown_shape_is_refused_with_a_sentence(model_type: str, extra: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match=r"docs/families\.md"):
        build(model_type, extra)

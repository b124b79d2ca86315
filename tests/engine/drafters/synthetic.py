"""Tiny checkpoints in every published layout: the names and shapes that people will meet, with random weights."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

H, INNER, HEADS, KV, DIM, V, LAYERS, TAPS = 32, 48, 4, 2, 8, 64, 2, [1, 3, 4]
N_TARGET, MASK, RANK = 6, 60, 4
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Facts:
    hidden_size: int = H
    num_layers: int = N_TARGET
    vocab_size: int = V
    raw: dict[str, Any] = field(default_factory=dict)


class Lender:
    """A random table that stands for the target's embedding and head."""

    def __init__(self, vocab: int = V, hidden: int = H, raw: dict[str, Any] | None = None) -> None:
        self.spec = Facts(hidden, N_TARGET, vocab, raw or {})
        self.table = mx.random.normal((vocab, hidden), key=mx.random.key(99)) * 0.3

    def raw_embed(self, ids: mx.array) -> mx.array:
        return self.table[ids]

    def raw_logits(self, hidden: mx.array) -> mx.array:
        return hidden @ self.table.T


def random(shapes: Shapes, dtype: mx.Dtype = mx.float32, seed: int = 7) -> dict[str, mx.array]:
    key = mx.random.key(seed)
    out: dict[str, mx.array] = {}
    for name, shape in shapes.items():
        key, sub = mx.random.split(key)
        noise = mx.random.normal(shape, key=sub)
        value = 1.0 + 0.1 * noise if len(shape) == 1 and "bias" not in name else noise / np.sqrt(shape[-1])
        out[name] = value.astype(dtype)
    return out


# The building blocks of the layouts -----------------------------------------------------------------------------------


def backbone(layers: int = LAYERS, **changes: Any) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "hidden_size": H,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": DIM,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "vocab_size": V,
        "layer_types": ["full_attention"] * layers,
        "attention_bias": False,
        **changes,
    }


def layers(count: int = LAYERS, dim: int = DIM, kv: int = KV, gate: int = 1) -> Shapes:
    shapes: Shapes = {}
    for i in range(count):
        p = f"layers.{i}"
        shapes |= {
            f"{p}.input_layernorm.weight": (H,),
            f"{p}.post_attention_layernorm.weight": (H,),
            f"{p}.self_attn.q_proj.weight": (HEADS * dim * gate, H),
            f"{p}.self_attn.k_proj.weight": (kv * dim, H),
            f"{p}.self_attn.v_proj.weight": (kv * dim, H),
            f"{p}.self_attn.o_proj.weight": (H, HEADS * dim),
            f"{p}.self_attn.q_norm.weight": (dim,),
            f"{p}.self_attn.k_norm.weight": (dim,),
            f"{p}.mlp.gate_proj.weight": (INNER, H),
            f"{p}.mlp.up_proj.weight": (INNER, H),
            f"{p}.mlp.down_proj.weight": (H, INNER),
        }
    return shapes


def trunk(taps: int = len(TAPS)) -> Shapes:
    return {"fc.weight": (H, taps * H), "hidden_norm.weight": (H,), "norm.weight": (H,)}


def markov(head: int = V) -> Shapes:
    return {"markov_head.markov_w1.weight": (V, RANK), "markov_head.markov_w2.weight": (head, RANK)}


CONFIDENCE: Shapes = {"confidence_head.proj.weight": (1, H + RANK), "confidence_head.proj.bias": (1,)}
TABLES: Shapes = {"embed_tokens.weight": (V, H), "lm_head.weight": (V, H)}


@dataclass
class Layout:
    """A config and its tensors, still open to mutation."""

    config: dict[str, Any]
    tensors: dict[str, mx.array]

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        mx.save_safetensors(str(folder / "model.safetensors"), self.tensors)
        return folder


DSPARK = {
    "block_size": 7,
    "num_target_layers": N_TARGET,
    "mask_token_id": MASK,
    "target_layer_ids": TAPS,
    "markov_rank": RANK,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


def deepspec() -> Layout:
    config = {"architectures": ["Qwen3DSparkModel"], **backbone(), **DSPARK, "tie_word_embeddings": False}
    return Layout(config, random({**TABLES, **trunk(), **layers(), **markov(), **CONFIDENCE}))


def deepspec_gemma() -> Layout:
    config = {
        "architectures": ["Gemma4DSparkModel"],
        **backbone(),
        **DSPARK,
        "model_type": "gemma4_unified_text",
        "attention_k_eq_v": True,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "final_logit_softcapping": 30.0,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    }
    shapes = {**TABLES, **trunk(), **layers(dim=16, kv=1), **markov(), **CONFIDENCE}
    for i in range(LAYERS):
        del shapes[f"layers.{i}.self_attn.v_proj.weight"]
        shapes |= {
            f"layers.{i}.pre_feedforward_layernorm.weight": (H,),
            f"layers.{i}.post_feedforward_layernorm.weight": (H,),
            f"layers.{i}.layer_scalar": (1,),
        }
    return Layout(config, random(shapes))


def minicpm() -> Layout:
    config = {
        "architectures": ["Qwen3DSparkModel"],
        **backbone(),
        **DSPARK,
        "projector_type": "dspark",
        "draft_vocab_size": V,
    }
    return Layout(config, random({**trunk(), **layers(), **markov(), **CONFIDENCE}))


def stock_with_noise() -> Layout:
    """A head whose config is a copy of a Qwen3.5 target's, with that target's rope and gate fields."""
    noise = {
        "partial_rotary_factor": 0.25,
        "attn_output_gate": True,
        "mrope_section": [1, 1, 2],
        "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True},
    }
    made = deepspec()
    return Layout({**made.config, "model_type": "qwen3_5_text", **noise}, made.tensors)


def ornith() -> Layout:
    config = {
        **backbone(),
        **DSPARK,
        "architectures": ["Qwen35DSparkModel"],
        "model_type": "qwen3_5",
        "enable_qwen35_gated_q_proj": True,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "rope_type": "default"},
        "confidence_temperatures": [1.1, 1.0, 0.9, 0.9, 0.8, 0.8, 0.8],
    }
    return Layout(config, random({**TABLES, **trunk(), **layers(gate=2), **markov(), **CONFIDENCE}))


def nemotron() -> Layout:
    config = {
        "architectures": ["Qwen3DSparkModel"],
        **backbone(),
        **DSPARK,
        "block_size": 8,
        "dspark_markov_rank": RANK,
        "eagle_aux_hidden_state_layer_ids": [t + 1 for t in TAPS],
        "has_embed_tokens": True,
        "has_lm_head": False,
        "dspark_bonus_anchor": True,
        "dflash_query_causal": True,
        "dflash_config": {"causal": True, "use_swa": True, "swa_window_size": 16, "sample_from_anchor": False},
    }
    shapes = {"embed_tokens.weight": (V, H), **trunk(), **layers(), **markov()}
    shapes |= {f"layers.{i}.self_attn.attention_sink_bias": (HEADS,) for i in range(LAYERS)}
    return Layout(config, random(shapes, mx.bfloat16))


def nemotron_nvfp4() -> Layout:
    made = nemotron()
    packed: dict[str, mx.array] = {}
    for name, value in made.tensors.items():
        if "_proj.weight" in name:
            packed |= pack_nvfp4(name, value)
        else:
            packed[name] = value
    return Layout(made.config, packed)


def pack_nvfp4(name: str, weight: mx.array) -> dict[str, mx.array]:
    rows, columns = weight.shape
    rng = np.random.default_rng(3)
    return {
        name: mx.array(rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8)),
        f"{name}_scale": mx.to_fp8(mx.array(rng.uniform(0.5, 2.0, (rows, columns // 16)).astype(np.float32))),
        f"{name}_scale_2": mx.array(0.05, dtype=mx.float32),
    }


def zlab() -> Layout:
    config = {
        "architectures": ["DFlashDraftModel"],
        **backbone(layer_types=["sliding_attention", "full_attention"], sliding_window=16, use_sliding_window=True),
        "block_size": 16,
        "num_target_layers": N_TARGET,
        "dflash_config": {"target_layer_ids": TAPS, "mask_token_id": MASK},
    }
    return Layout(config, random({**trunk(), **layers()}))


SELECTOR: Shapes = {
    "candidate_selector.hidden_projection.weight": (RANK, H),
    "candidate_selector.predecessor_codebook": (V, RANK),
    "candidate_selector.successor_codebook": (V, RANK),
}
SELECTOR_KEYS = {"conv_group_size": 16, "conv_kernel_size": 2, "selector_rank": RANK, "selector_top_k": 8}


def convs() -> Shapes:
    shapes: Shapes = {}
    for i in range(LAYERS):
        for conv in ("attention_conv", "mlp_conv"):
            shapes[f"layers.{i}.{conv}.base_kernel"] = (2, 2, H)
            shapes[f"layers.{i}.{conv}.kernel_projection.weight"] = (2 * 2 * H // 16, H)
    return shapes


def dflash2() -> Layout:
    config = {
        "architectures": ["DFlash2DraftModel"],
        **backbone(layer_types=["sliding_attention"] * LAYERS, sliding_window=16, use_sliding_window=True),
        "is_causal": False,
        "block_size": 8,
        "num_target_layers": N_TARGET,
        "dflash_config": {
            "target_layer_ids": TAPS,
            "mask_token_id": MASK,
            "output_multiplier": 0.2,
            "final_logit_softcapping": 20.0,
            **SELECTOR_KEYS,
        },
    }
    return Layout(config, random({**trunk(), **layers(), **convs(), **SELECTOR}))


def muse() -> Layout:
    config = {
        "architectures": ["MuseGlimmerAssistantModel"],
        **backbone(layer_types=None),
        "model_type": "muse_glimmer_assistant",
        "sliding_window": 16,
        "block_size": 16,
        "mask_token_id": MASK,
        "target_layer_ids": TAPS,
    }
    shapes = {**trunk(), **layers()}
    shapes["encoder.fc.weight"] = shapes.pop("fc.weight")
    shapes["encoder.output_norm_enc.weight"] = shapes.pop("hidden_norm.weight")
    return Layout(config, random(shapes))


def speculators(
    algorithm: str = "dspark", tokens: int | None = 8, block: int = 8, draft_vocab: int | None = 24
) -> Layout:
    config: dict[str, Any] = {
        "architectures": ["DSparkSpeculator"],
        "speculators_model_type": algorithm,
        "speculators_config": {
            "algorithm": algorithm,
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": tokens}],
            "verifier": {"name_or_path": "somewhere"},
        },
        "transformer_layer_config": backbone(),
        "block_size": block,
        "mask_token_id": MASK,
        "aux_hidden_state_layer_ids": [t + 1 for t in TAPS],
        "sliding_window_non_causal": False,
    }
    if tokens is None:
        config["speculators_config"]["proposal_methods"] = []
    shapes = {**trunk(), **layers()}
    head = draft_vocab or V
    if algorithm == "dspark":
        config |= {"markov_rank": RANK, "markov_head_type": "vanilla", "confidence_head_with_markov": True}
        shapes |= {**markov(head), **CONFIDENCE}
    if algorithm == "dflash2":
        config["dflash_config"] = dict(SELECTOR_KEYS)
        shapes |= {**convs(), **SELECTOR}
    if draft_vocab:
        config["draft_vocab_size"] = draft_vocab
        shapes["lm_head.weight"] = (draft_vocab, H)
    tensors = random(shapes)
    if draft_vocab:
        ids = np.sort(np.random.default_rng(5).choice(V, draft_vocab, replace=False))
        tensors["d2t"] = mx.array(ids - np.arange(draft_vocab), dtype=mx.int64)
        tensors["t2d"] = mx.array(np.isin(np.arange(V), ids))
        tensors["verifier_norm.weight"] = mx.ones((H,))
    return Layout(config, tensors)


def specforge() -> Layout:
    nested = {"projector_type": "dspark", "target_layer_ids": TAPS, "mask_token_id": MASK, "markov_rank": RANK}
    config = {
        "architectures": ["DFlashDraftModel"],
        **backbone(),
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 32,
            "beta_slow": 1,
        },
        "block_size": 7,
        "num_target_layers": N_TARGET,
        "dflash_config": nested,
    }
    return Layout(config, random({**trunk(), **layers(), **markov(), **CONFIDENCE}))


def lfm2() -> Layout:
    config = {
        "architectures": ["Lfm2DSparkDraftModel"],
        **backbone(rms_norm_eps=1e-5),
        "rope_is_neox_style": False,
        "block_size": 9,
        "markov_rank": RANK,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": TAPS, "num_target_layers": N_TARGET},
    }
    return Layout(config, random({**trunk(), **layers(), **markov(), **CONFIDENCE}))


LAYOUTS: dict[str, Callable[[], Layout]] = {
    "deepspec": deepspec,
    "deepspec-gemma": deepspec_gemma,
    "minicpm": minicpm,
    "stock-with-noise": stock_with_noise,
    "ornith": ornith,
    "nemotron": nemotron,
    "nemotron-nvfp4": nemotron_nvfp4,
    "zlab": zlab,
    "dflash2": dflash2,
    "muse": muse,
    "speculators-dspark": speculators,
    "speculators-dflash": lambda: speculators("dflash", tokens=7, draft_vocab=None),
    "speculators-dflash-reduced": lambda: speculators("dflash", tokens=7),
    "speculators-dflash2": lambda: speculators("dflash2", tokens=7, draft_vocab=None),
    "specforge": specforge,
    "lfm2": lfm2,
}


# torch.save -----------------------------------------------------------------------------------------------------------


def write_torch(path: Path, value: Any, extra: bytes = b"") -> Path:
    """What `torch.save` writes for a tensor, or for a mapping of names to tensors and numbers; float32 or bfloat16.
    `extra` are opcodes in front of the value."""
    storages: list[bytes] = []

    def text(s: str) -> bytes:
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def number(n: int) -> bytes:
        return b"J" + struct.pack("<i", n)

    def numbers(values: Any) -> bytes:
        return b"(" + b"".join(number(n) for n in values) + b"t"

    def tensor(array: mx.array) -> bytes:
        half = array.dtype == mx.bfloat16
        storages.append(np.array(array.view(mx.uint16) if half else array).tobytes())
        kind = b"BFloat16Storage" if half else b"FloatStorage"
        storage = b"(" + text("storage") + b"ctorch\n" + kind + b"\n" + text(str(len(storages) - 1)) + text("cpu")
        storage += number(array.size) + b"tQ"
        strides = [int(np.prod(array.shape[i + 1 :])) for i in range(array.ndim)]
        hooks = b"\x89ccollections\nOrderedDict\n)R"
        rest = number(0) + numbers(array.shape) + numbers(strides) + hooks
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"

    def build(v: Any) -> bytes:
        if isinstance(v, mx.array):
            return tensor(v)
        if isinstance(v, dict):
            return b"}(" + b"".join(text(k) + build(x) for k, x in v.items()) + b"u"
        return text(v) if isinstance(v, str) else number(v)

    pickled = b"\x80\x02" + extra + build(value) + b"."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mask_embedding/data.pkl", pickled)
        archive.writestr("mask_embedding/byteorder", "little")
        for i, data in enumerate(storages):
            archive.writestr(f"mask_embedding/data/{i}", data)
    return path


# GGUF -----------------------------------------------------------------------------------------------------------------

_PER_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "norm.weight": "output_norm.weight",
    "fc.weight": "dspark.fc.weight",
    "hidden_norm.weight": "dspark.hidden_norm.weight",
    "markov_head.markov_w1.weight": "dspark.markov_head_a.weight",
    "markov_head.markov_w2.weight": "dspark.markov_head_b.weight",
    "confidence_head.proj.weight": "dspark.confidence_head.weight",
    "confidence_head.proj.bias": "dspark.confidence_head.bias",
}


def gguf_metadata() -> dict[str, Any]:
    return {
        "general.architecture": "dspark",
        "dspark.embedding_length": H,
        "dspark.feed_forward_length": INNER,
        "dspark.block_count": LAYERS,
        "dspark.attention.head_count": HEADS,
        "dspark.attention.head_count_kv": KV,
        "dspark.attention.key_length": DIM,
        "dspark.attention.layer_norm_rms_epsilon": 1e-6,
        "dspark.rope.freq_base": 10000.0,
        "dspark.dspark.block_size": 4,
        "dspark.dspark.mask_token_id": MASK,
        "dspark.dspark.target_layers": TAPS,
        "dspark.dspark.markov_rank": RANK,
        "dspark.dspark.confidence_head": True,
        "dspark.dspark.confidence_head_with_markov": True,
        "dspark.dspark.log_snr_conditioning": True,
        "dspark.dspark.min_log_snr": -10.0,
        "dspark.dspark.max_log_snr": 10.0,
    }


def gguf_tensors() -> dict[str, mx.array]:
    """In DeepSpec's names."""
    snr: Shapes = {
        "log_snr_embed.fc1.weight": (H, 128),
        "log_snr_embed.fc1.bias": (H,),
        "log_snr_embed.fc2.weight": (H, H),
        "log_snr_embed.fc2.bias": (H,),
    }
    return random({**TABLES, **trunk(), **layers(), **markov(), **CONFIDENCE, **snr})


def gguf_name(name: str) -> str:
    if name in _WHOLE:
        return _WHOLE[name]
    if name.startswith("log_snr_embed"):
        return "dspark.log_snr_" + name.removeprefix("log_snr_embed.")
    _, index, rest = name.split(".", 2)
    stem, _, kind = rest.rpartition(".")
    return f"blk.{index}.{_PER_LAYER[stem]}.{kind}"


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    tensors: dict[str, mx.array],
    kind: int = 0,
    version: int = 3,
    named: Callable[[str], str] = lambda name: gguf_name(name),
) -> Path:
    """A GGUF with matrices stored as F32 (0), F16 (1), BF16 (30) or in a block format by the reference's quantiser, and
    vectors as F32 where matrices are in blocks."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    def text(s: str) -> bytes:
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def value(v: Any) -> bytes:
        if isinstance(v, bool):
            return struct.pack("<I?", 7, v)
        if isinstance(v, int):
            return struct.pack("<II", 4, v)
        if isinstance(v, float):
            return struct.pack("<If", 6, v)
        if isinstance(v, list):
            if v and isinstance(v[0], bool):
                return struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
            if v and isinstance(v[0], str):
                return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(text(x) for x in v)
            return struct.pack("<IIQ", 9, 4, len(v)) + b"".join(struct.pack("<I", x) for x in v)
        return struct.pack("<I", 8) + text(v)

    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(k) + value(v) for k, v in metadata.items())
    body = b""
    for name, array in tensors.items():
        dims = tuple(reversed(array.shape))
        stored = kind if kind in (0, 1, 30) or (array.ndim > 1 and dims[0] % 32 == 0) else 0
        raw_bytes = quantize(np.array(array.astype(mx.float32)), GGMLQuantizationType(stored)).tobytes()
        head += text(named(name)) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, stored, len(body))
        body += raw_bytes + b"\0" * (-len(raw_bytes) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


_LLAMA_CPP = {
    "norm.weight": "output_norm.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "fc.weight": "fc.weight",
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
}
_CONVS = {
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}


def llama_cpp_name(name: str) -> str:
    """DeepSpec's name -> that of llama.cpp itself."""
    if name in _LLAMA_CPP:
        return _LLAMA_CPP[name]
    _, index, rest = name.split(".", 2)
    return f"blk.{index}.{_CONVS[rest]}" if rest in _CONVS else gguf_name(name)


def llama_cpp_metadata(made: Layout) -> dict[str, Any]:
    """Of a drafter that llama.cpp's own converter made from a layout of this file."""
    config = made.config
    nested = config.get("dflash_config", {})
    both = {**config, **nested}
    values: dict[str, Any] = {
        "embedding_length": H,
        "feed_forward_length": INNER,
        "block_count": LAYERS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV,
        "attention.key_length": DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.causal": False,
        "rope.freq_base": 10000.0,
        "block_size": config["block_size"],
        "target_layers": [t + 1 for t in TAPS],
    }
    if config.get("sliding_window"):
        values["attention.sliding_window"] = config["sliding_window"]
        values["attention.sliding_window_pattern"] = [t == "sliding_attention" for t in config["layer_types"]]
    if "selector_rank" in both:
        values |= {name: both[name] for name in SELECTOR_KEYS}
        values |= {"logit_scale": both["output_multiplier"], "final_logit_softcapping": both["final_logit_softcapping"]}
    return {
        "general.architecture": "dflash",
        **{f"dflash.{name}": value for name, value in values.items()},
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(V)],
        "tokenizer.ggml.mask_token_id": MASK,
    }

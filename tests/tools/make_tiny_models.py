#!/usr/bin/env python3
"""Write tiny random models as complete checkpoint folders, for tests and for trying things by hand.

    python tests/tools/make_tiny_models.py OUT [--only qwen3 lfm2] [--vision] [--dtype bfloat16] [--bits 4]

Every folder is an ordinary checkpoint (config.json, model.safetensors, tokenizer, and a processor for vision models) of
at most 2 MB that the ordinary loaders accept. Weights are seeded; norms, routers and layer scalars are random too,
since defaults of 1 and 0 would hide a forgotten one. On the CPU a mixture of experts runs in float32 or quantised only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine import backend  # noqa: F401  (before mlx)

import mlx.core as mx  # isort: skip
import mlx.nn as nn  # isort: skip
from mlx.utils import tree_flatten  # isort: skip
from engine.diagnostics.self_test.tiny_configs import EOS, SPECIAL, VOCAB, VOCAB_BPE, Config, token_id
from engine.diagnostics.self_test.tiny_models import build_model, cast_to, own_copy, quantize, randomize
from tests.tools.tiny_configs import TEXT, VISION

CORPUS = [
    "def add(a, b):\n    return a + b\n",
    "for i in range(10):\n    print(i)\n",
    "The quick brown fox jumps over the lazy dog. ",
    "the and that with this from have they will your what when ",
] * 4

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}@IMAGE@"
    "{% else %}{{ part['text'] or part['content'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

IMAGE_MARK = {
    "muse_glimmer": "<|patch|>",
    "gemma4": "<|image|>",
    "gemma4_dense": "<|image|>",
}
QWEN_IMAGE_MARK = "<|vision_start|><|image_pad|><|vision_end|>"


def write_tokenizer(out: Path, family: str) -> None:
    """A byte-level BPE that round-trips any text, plus the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_BPE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(CORPUS, trainer)
    assert tok.get_vocab_size() == VOCAB_BPE, tok.get_vocab_size()
    tok.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIAL])
    assert tok.token_to_id(SPECIAL[-1]) == token_id(SPECIAL[-1]) < VOCAB
    tok.save(str(out / "tokenizer.json"))

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE.replace("@IMAGE@", IMAGE_MARK.get(family, QWEN_IMAGE_MARK)),
    }
    if family.startswith("gemma4"):
        config |= {
            "image_token": "<|image|>", "boi_token": "<|image>",
            "eoi_token": "<image|>", "audio_token": "<|audio|>",
            "boa_token": "<|audio>", "eoa_token": "<audio|>",
        }  # fmt: skip
    dump(out / "tokenizer_config.json", config)


def build_vision_model(config: Config) -> nn.Module:
    """With the tower, by mlx-vlm's classes."""
    arch = importlib.import_module(f"mlx_vlm.models.{config['model_type']}")
    model_config = arch.ModelConfig.from_dict(own_copy(config))
    # mlx-vlm's loader fills these in when from_dict leaves plain dicts
    for part in ("text", "vision"):
        value = getattr(model_config, f"{part}_config")
        if isinstance(value, dict):
            cls = getattr(arch, f"{part.capitalize()}Config")
            setattr(model_config, f"{part}_config", cls.from_dict(value))
    return arch.Model(model_config)


def pack_2bit(codes: mx.array) -> mx.array:
    """Codes 0..3 of shape (rows, width) to MLX's packing, 16 to a uint32."""
    shifts = mx.arange(0, 32, 2, dtype=mx.uint32)
    codes = codes.astype(mx.uint32).reshape(codes.shape[0], -1, 16)
    return mx.sum(mx.left_shift(codes, shifts), axis=-1).astype(mx.uint32)


def ternary(weight: mx.array, group: int = 128) -> dict[str, mx.array]:
    """A ternary matrix as a 2-bit affine pack: codes 0, 1, 2 mean -s, 0, +s.

    ``mx.quantize`` cannot produce this: it spreads four levels over [-s, s] and
    none of them is 0.
    """
    rows, width = weight.shape
    groups = weight.astype(mx.float32).reshape(rows, width // group, group)
    scale = mx.mean(mx.abs(groups), axis=-1)
    codes = mx.clip(mx.round(groups / scale[..., None]), -1, 1) + 1
    return {
        "weight": pack_2bit(codes.reshape(rows, width)),
        "scales": scale.astype(mx.float16),
        "biases": (-scale).astype(mx.float16),
    }


def packable(model: Any) -> Iterator[tuple[str, Any]]:
    for path, module in model.language_model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and module.weight.shape[-1] % 128 == 0:
            yield path, module


def pack_bonsai_ternary(model: Any, weights: dict[str, mx.array], config: Config) -> None:
    """Plain qwen3_5 plus ``quantization``: what Ternary-Bonsai-27B-mlx-2bit is."""
    for path, module in packable(model):
        for key, value in ternary(module.weight).items():
            weights[f"language_model.{path}.{key}"] = value
    config["quantization"] = {"group_size": 128, "bits": 2, "mode": "affine"}
    config["quantization_config"] = config["quantization"]


def pack_bonsai_hadamard(model: Any, weights: dict[str, mx.array], config: Config) -> None:
    """Schema-2 Hadamard pack: a manifest of packed modules and their signs."""
    config["model_type"] = "prism_hadamard_qwen35"
    config |= {
        "schema_version": 2,
        "base_model_type": "qwen3_5",
        "tensor_namespace": "mlx-vlm-qwen3_5",
        "gdn_activation_layout": "grouped",
        "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
        "modules": [],
    }
    for path, module in packable(model):
        width = module.weight.shape[-1]
        block = 512 if width % 512 == 0 else 0
        for key, value in ternary(module.weight).items():
            weights[f"language_model.{path}.{key}"] = value
        if block:
            signs = mx.where(mx.random.uniform(shape=(width,)) < 0.5, -1.0, 1.0)
            weights[f"language_model.{path}.signs"] = signs.astype(mx.float32)
        config["modules"].append(
            {
                "path": path,
                "block": block,
                "embedding": isinstance(module, nn.Embedding),
                "dtype": "float16",
            }
        )


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def make(
    family: str,
    out: Path,
    *,
    vision: bool = False,
    dtype: str = "float32",
    bits: int | None = None,
    group_size: int = 32,
    seed: int = 0,
    changes: Config | None = None,
) -> Path:
    """Write one family's folder to `out` and return it. `changes` are merged into the (text) configuration."""
    config, processor = VISION[family] if vision else (TEXT[family], None)
    config = own_copy(config, changes)
    out.mkdir(parents=True, exist_ok=True)

    mx.random.seed(seed)
    model = build_vision_model(config) if vision else build_model(config)
    randomize(model, config.get("text_config", {}).get("output_multiplier", 1.0))
    if family.startswith("bonsai"):
        dtype, bits = "float16", None  # packs fix their own precision
    cast_to(model, getattr(mx, dtype))
    if bits:
        config["quantization"] = quantize(model, bits, group_size)
        config["quantization_config"] = config["quantization"]
    weights = dict(tree_flatten(model.parameters()))
    if family == "bonsai_ternary":
        pack_bonsai_ternary(model, weights, config)
    elif family == "bonsai_hadamard":
        pack_bonsai_hadamard(model, weights, config)

    config["torch_dtype"] = dtype
    mx.eval(weights)
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})
    dump(out / "config.json", config)
    dump(out / "generation_config.json", EOS)
    if processor is not None:
        dump(out / "processor_config.json", processor)
        dump(out / "preprocessor_config.json", processor["image_processor"])
    write_tokenizer(out, family)
    return out


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write tiny random-weight model folders.")
    parser.add_argument("out", type=Path, help="folder that gets one folder a family")
    parser.add_argument("--only", nargs="+", choices=sorted(TEXT), metavar="FAMILY")
    parser.add_argument("--vision", action="store_true", help="with the vision tower (needs mlx-vlm)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--bits", type=int, choices=[2, 3, 4, 6, 8])
    parser.add_argument("--group-size", type=int, default=32, choices=[32, 64, 128])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for family in args.only or (VISION if args.vision else TEXT):
        options = {"vision": args.vision, "dtype": args.dtype, "bits": args.bits, "group_size": args.group_size}
        folder = make(family, args.out / family, seed=args.seed, **options)
        size = sum(f.stat().st_size for f in folder.iterdir()) / 1024
        sys.stdout.write(f"{folder}  {size:.0f} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

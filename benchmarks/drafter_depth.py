"""Time of a drafter's round against context depth: it may grow by its attention, and by nothing else.

Random weights in the shape of a small drafter; nothing is accepted or verified. Prints a JSON line and a table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from engine import backend  # isort: skip  (loads the BLAS, so it comes before anything that imports MLX)

import mlx.core as mx

from engine.drafters.load import load_drafter
from engine.sampling.sampler import RowSampler
from engine.types import Sampling

HIDDEN, INNER, HEADS, KV, DIM, VOCAB, LAYERS, TAPS, RANK = 576, 1536, 9, 3, 64, 4096, 2, 3, 32


class Facts:
    hidden_size, num_layers, vocab_size = HIDDEN, 30, VOCAB
    raw: dict[str, Any] = {}  # noqa: RUF012  (stands for a target's facts)


class Lender:
    """Nothing is borrowed: the drafter brings its own tables."""

    spec = Facts()

    def raw_embed(self, ids: mx.array) -> mx.array:
        raise NotImplementedError

    def raw_logits(self, hidden: mx.array) -> mx.array:
        raise NotImplementedError


def checkpoint(folder: Path) -> Path:
    """A DeepSpec folder with random weights."""
    config = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": DIM,
        "vocab_size": VOCAB,
        "rope_theta": 1e5,
        "block_size": 7,
        "mask_token_id": 1,
        "target_layer_ids": [1, 14, 27],
        "markov_rank": RANK,
    }
    (folder / "config.json").write_text(json.dumps(config))
    from engine.drafters import registry
    from engine.drafters.checkpoint.layouts import detect

    read = detect(config).read(config)
    expected = registry.kind(read.kind).expected_tensors
    shapes = expected(read, lambda name: name.startswith(("embed", "lm_head")), HIDDEN)
    weights = {n: mx.random.normal(shape) / 30 for n, shape in shapes.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return folder


def measure(drafter: Any, depths: list[int], rounds: int) -> list[dict[str, float]]:
    context = drafter.new_context()
    sampler = RowSampler(Sampling(), [0], VOCAB)
    rows: list[dict[str, float]] = []
    for depth in depths:
        while context.length < depth:
            n = min(256, depth - context.length)
            drafter.observe(context, mx.random.normal((n, TAPS * HIDDEN)), context.length, [0] * n)
            mx.eval(context.arrays())
        taps = mx.random.normal((3, TAPS * HIDDEN))
        times: list[float] = []
        peak = 0
        for _ in range(rounds):
            mx.eval(taps)
            mx.clear_cache()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            began = time.perf_counter()
            mx.eval(drafter.propose(context, 2, 7, sampler).tokens)
            drafter.observe(context, taps, context.length, [0, 0, 0])
            mx.eval(context.arrays())
            times.append((time.perf_counter() - began) * 1e3)
            peak = max(peak, mx.get_peak_memory() - before)
        held = sum(store.visible for store in context.layers) / len(context.layers)
        rows.append({"depth": depth, "visible": held, "ms": statistics.median(times), "peak_kb": peak / 1024})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="*", default=[64, 512, 1000, 2000, 4000, 8000])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--context-rows", type=int, default=0, help="bound of full-attention layers; 0: none")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        drafter = load_drafter(checkpoint(Path(folder)), Lender(), bits=0, context_rows=args.context_rows or None)
        rows = measure(drafter, args.depths, args.rounds)
    row_bytes = LAYERS * 2 * KV * DIM * 4
    facts = {"benchmark": "drafter_depth", "load": os.getloadavg()[0], "blas": backend.BLAS.kind, "rows": rows}
    print(json.dumps(facts))
    print(f"{'depth':>8}{'visible':>9}{'ms a round':>12}{'allocated kB':>14}{'context kB':>12}")
    for row in rows:
        size = row["visible"] * row_bytes / 1024
        print(f"{row['depth']:>8.0f}{row['visible']:>9.0f}{row['ms']:>12.2f}{row['peak_kb']:>14.0f}{size:>12.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

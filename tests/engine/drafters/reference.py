"""A block drafter's forward in numpy, one-shot and without any cache: slow, plain, and written from the equations."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from engine.drafters.checkpoint.config import DrafterConfig

Arrays = dict[str, np.ndarray]


def to_numpy(tensors: dict[str, mx.array]) -> Arrays:
    return {n: np.array(v.astype(mx.float32)).astype(np.float64) for n, v in tensors.items() if n not in ("d2t", "t2d")}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def norm(x: np.ndarray, weight: np.ndarray | float, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def rope(x: np.ndarray, positions: np.ndarray, config: DrafterConfig) -> np.ndarray:
    """x [rows, heads, dim]."""
    spec = config.rope
    half = spec.dims // 2
    frequencies = spec.theta ** (-2 * np.arange(half) / spec.dims)
    scale = 1.0
    if spec.rotated is not None:
        frequencies[spec.rotated :] = 0
    if spec.yarn is not None:
        y = spec.yarn
        pair = np.arange(half)

        def bound(beta: float) -> float:
            return spec.dims * np.log(y.original / (beta * 2 * np.pi)) / (2 * np.log(spec.theta))

        low, high = max(np.floor(bound(y.beta_fast)), 0), min(np.ceil(bound(y.beta_slow)), spec.dims - 1)
        keep = 1 - np.clip((pair - low) / max(high - low, 1e-3), 0, 1)
        frequencies = frequencies * (keep + (1 - keep) / y.factor)
        scale = 0.1 * np.log(y.factor) + 1
    angle = positions[:, None, None] * frequencies
    cos, sin = np.cos(angle), np.sin(angle)
    out = x.copy()
    a, b = (
        (slice(0, spec.dims, 2), slice(1, spec.dims, 2)) if spec.interleaved else (slice(half), slice(half, spec.dims))
    )
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out * scale


def attention(x: np.ndarray, c: np.ndarray, w: Arrays, p: str, config: DrafterConfig, index: int) -> np.ndarray:
    rows, ctx, eps, dim = len(x), len(c), config.rms_norm_eps, config.head_dim
    off = 1.0 if config.offset_norms else 0.0
    q = (x @ w[f"{p}.q_proj.weight"].T).reshape(rows, config.num_heads, -1)
    q, gate = q[..., :dim], q[..., dim:]
    keys = np.concatenate([c, x])
    raw = (keys @ w[f"{p}.k_proj.weight"].T).reshape(len(keys), config.num_kv_heads, dim)
    v = raw if config.k_eq_v else (keys @ w[f"{p}.v_proj.weight"].T).reshape(raw.shape)
    if config.backbone == "gemma4":
        v = norm(v, 1.0, eps)
    positions = np.arange(ctx + rows)
    q = rope(norm(q, w[f"{p}.q_norm.weight"] + off, eps), positions[ctx:], config)
    k = rope(norm(raw, w[f"{p}.k_norm.weight"] + off, eps), positions, config)
    rule, out = config.layers[index], np.zeros_like(q)
    for i in range(rows):
        distance = ctx + i - positions
        seen = np.ones(len(keys), bool)
        if rule.causal:
            seen &= distance >= 0
        if rule.window is not None:
            seen &= np.abs(distance) < rule.window
        for head in range(config.num_heads):
            group = head // (config.num_heads // config.num_kv_heads)
            score = k[:, group] @ q[i, head] * (1.0 if config.backbone == "gemma4" else dim**-0.5)
            weight = np.where(seen, np.exp(score), 0)
            sink = w.get(f"{p}.attention_sink_bias")
            total = weight.sum() + (0 if sink is None else np.exp(sink[head]))
            out[i, head] = weight @ v[:, group] / total
    if config.gated_query:
        out = out * sigmoid(gate)
    return out.reshape(rows, -1) @ w[f"{p}.o_proj.weight"].T


def mlp(x: np.ndarray, w: Arrays, p: str) -> np.ndarray:
    gate = x @ w[f"{p}.gate_proj.weight"].T
    return (gate * sigmoid(gate) * (x @ w[f"{p}.up_proj.weight"].T)) @ w[f"{p}.down_proj.weight"].T


def log_snr(config: DrafterConfig, w: Arrays) -> Any:
    if config.log_snr is None:
        return 0.0
    rows = []
    for i in range(config.block_size):
        t = 1000.0 if i == 0 else 0.0
        phase = t * 10000.0 ** (-np.arange(64) / 64)
        rows.append(np.concatenate([np.sin(phase), np.cos(phase)]))
    p = "log_snr_embed"
    hidden = np.array(rows) @ w[f"{p}.fc1.weight"].T + w[f"{p}.fc1.bias"]
    return (hidden * sigmoid(hidden)) @ w[f"{p}.fc2.weight"].T + w[f"{p}.fc2.bias"]


def block_hidden(
    config: DrafterConfig, tensors: dict[str, mx.array], taps: mx.array, anchor: int, table: mx.array
) -> np.ndarray:
    """Qwen3-shaped, without convolutions: hidden rows [B, H] of a block after context features taps [S, m*H]."""
    w, eps = to_numpy(tensors), config.rms_norm_eps
    off = 1.0 if config.offset_norms else 0.0
    c = norm(np.array(taps).astype(np.float64) @ w["fc.weight"].T, w["hidden_norm.weight"] + off, eps)
    embed = w.get("embed_tokens.weight", np.array(table).astype(np.float64))
    h = embed[[anchor] + [config.mask_token_id] * (config.block_size - 1)] + log_snr(config, w)
    for i in range(len(config.layers)):
        p = f"layers.{i}"
        x = norm(h, w[f"{p}.input_layernorm.weight"] + off, eps)
        h = h + attention(x, c, w, f"{p}.self_attn", config, i)
        h = h + mlp(norm(h, w[f"{p}.post_attention_layernorm.weight"] + off, eps), w, f"{p}.mlp")
    return norm(h, w["norm.weight"] + off, eps)

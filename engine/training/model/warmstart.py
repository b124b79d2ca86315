"""A start that already predicts: ridge regressions from what the drafter sees to what the target will say.

For an answer token at t the target's last hidden state at t is regressed on the whitened features of t - 1 and on the
token's own embedding. The first half becomes `fc`, the second the Markov map. Closed form, seconds, no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.training.data.blocks import Floats, Ints, Store


class Start(NamedTuple):
    """What `model.init` builds a drafter from."""

    context: Floats
    """[H, m*H], see Linear."""
    token: Floats
    """[H, H], see Linear."""
    side: Floats
    """[H]: its product is about 1 with every context row, and about -1 with every normalised embedding."""
    one: Floats
    """[H]: its product with a normalised embedding is about 1."""
    scale: float
    """Root mean square of the context part of the prediction."""
    explained: float


class Linear(NamedTuple):
    context: Floats
    """[H, m*H]: whitened features of the row before the anchor -> the target's hidden state at the anchor."""
    token: Floats
    """[H, H]: normalised embedding of the anchor -> the same."""
    explained: float
    """Share of the variance that the two explain together."""


def regress(
    store: Store, members: Ints, maps: Floats, embed: Floats, *, samples: int = 60000, ridge: float = 0.003
) -> Linear:
    """Fit on at most `samples` answer tokens."""
    rng = np.random.default_rng(0)
    at = np.sort(rng.permutation(store.answers(members))[:samples])
    m, h = maps.shape[:2]
    gram, cross = np.zeros((m * h + h, m * h + h), np.float32), np.zeros((m * h + h, h), np.float32)
    energy = 0.0
    for first in range(0, len(at), 4096):
        rows = at[first : first + 4096]
        x, y = _inputs(store, rows, maps, embed), store.last[rows].astype(np.float32)
        gram += x.T @ x
        cross += x.T @ y
        energy += float((y * y).sum())
    gram[np.diag_indices_from(gram)] += ridge * len(at)
    solved = np.linalg.solve(gram.astype(np.float64), cross.astype(np.float64)).astype(np.float32)
    explained = float((2.0 * (solved * cross).sum() - (solved * (gram @ solved)).sum()) / max(energy, 1e-9))
    return Linear(solved[: m * h].T.copy(), solved[m * h :].T.copy(), explained)


def _inputs(store: Store, rows: Ints, maps: Floats, embed: Floats) -> Floats:
    h = maps.shape[1]
    taps = store.taps[rows - 1].astype(np.float32)
    parts = [taps[:, i * h : (i + 1) * h] @ maps[i] for i in range(maps.shape[0])]
    token = embed[store.ids[rows]]
    token = token / np.sqrt(np.mean(token * token, axis=-1, keepdims=True) + 1e-6)
    return np.concatenate([*parts, token], axis=1)


def start(store: Store, members: Ints, maps: Floats, embed: Floats, mask_id: int, samples: int = 60000) -> Start:
    """Everything that a fresh drafter needs to know of its inputs."""
    linear = regress(store, members, maps, embed, samples=samples)
    at = np.sort(np.random.default_rng(1).permutation(store.answers(members))[:4000])
    x = _inputs(store, at, maps, embed)
    features, tokens = x[:, : linear.context.shape[1]], x[:, linear.context.shape[1] :]
    context = features @ linear.context.T
    scale = float(np.sqrt(np.mean(context * context)))
    context = context / np.sqrt(np.mean(context * context, axis=-1, keepdims=True) + 1e-6)
    mask = embed[mask_id] / np.sqrt(np.mean(embed[mask_id] ** 2) + 1e-6)
    inputs = np.concatenate([tokens, np.tile(mask, (len(tokens), 1))])
    sign = np.repeat(np.array([1.0, -1.0], np.float32), (len(context), len(inputs)))
    side = solve(np.concatenate([context, inputs]), sign)
    return Start(
        linear.context, linear.token, side, solve(inputs, np.ones(len(inputs), np.float32)), scale, linear.explained
    )


def solve(rows: Floats, wanted: Floats, ridge: float = 0.01) -> Floats:
    """w with rows @ w near `wanted`."""
    gram = rows.T @ rows / len(rows)
    gram[np.diag_indices_from(gram)] += ridge
    return np.linalg.solve(gram, rows.T @ wanted / len(rows)).astype(np.float32)

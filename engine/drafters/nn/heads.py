"""DSpark's heads on top of the block: a bias from the previous draft, and an estimate of whether a draft will stand.

The bias makes q conditional on the drafts before it; the estimate for draft i uses nothing of draft i itself, which is
what keeps a truncation by it lossless. Knows no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.nn.tensors import Matrix, Tensors


class MarkovHead:
    """Bigram bias W2 f(W1[previous token], hidden row), in the vanilla, gated and rnn forms of the reference."""

    def __init__(self, config: DrafterConfig, tensors: Tensors) -> None:
        self._kind, self._rank = config.markov_kind, config.markov_rank
        self._w1 = tensors.take("markov_head.markov_w1.weight")
        self.w2 = tensors.matrix("markov_head.markov_w2")
        self._mix: Matrix | None = None
        if self._kind != "vanilla":
            self._mix = tensors.matrix(f"markov_head.{'gate' if self._kind == 'gated' else 'joint'}_proj")

    def begin(self, rows: int) -> mx.array:
        """Recurrent state before the first draft [B, r]; only the rnn form uses it."""
        return mx.zeros((rows, self._rank), dtype=self._w1.dtype)

    def embed(self, token: mx.array) -> mx.array:
        return self._w1[token]

    def step(self, e: mx.array, hidden: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
        """Bias [B, Vd] and the next state, from the previous token's row e [B, r] and this row's hidden [B, H]."""
        latent = e
        if self._kind == "gated" and self._mix is not None:
            latent = mx.sigmoid(self._mix(mx.concatenate([hidden, e], axis=-1))) * e
        elif self._kind == "rnn" and self._mix is not None:
            gate, candidate, out = mx.split(self._mix(mx.concatenate([state, e, hidden], axis=-1)), 3, axis=-1)
            gate = mx.sigmoid(gate)
            state = gate * state + (1.0 - gate) * mx.tanh(candidate)
            latent = mx.tanh(out)
        return self.w2(latent), state


class ConfidenceHead:
    """Estimated chance that a draft is accepted, given that those before it were."""

    def __init__(self, config: DrafterConfig, tensors: Tensors) -> None:
        self._proj = tensors.matrix("confidence_head.proj")
        self._with_markov = config.confidence_with_markov
        self._temperatures = config.confidence_temperatures

    def logits(self, hidden: mx.array, embeds: mx.array | None) -> mx.array:
        """[k] float32 before the sigmoid; hidden [k, H], embeds [k, r] of each row's previous token."""
        x = mx.concatenate([hidden, embeds], axis=-1) if self._with_markov and embeds is not None else hidden
        return self._proj(x)[:, 0].astype(mx.float32)

    def __call__(self, hidden: mx.array, embeds: mx.array | None) -> mx.array:
        """[k] float32 in (0, 1)."""
        logits = self.logits(hidden, embeds)
        if self._temperatures:
            t = list(self._temperatures) + [self._temperatures[-1]] * logits.shape[0]
            logits = logits / mx.array(t[: logits.shape[0]], dtype=mx.float32)
        return mx.sigmoid(logits)


def cut_by_threshold(confidence: Sequence[float], threshold: float) -> int:
    """Drafts to keep: stop before the first one below the threshold. 0 is a plain step."""
    for i, c in enumerate(confidence):
        if c < threshold:
            return i
    return len(confidence)


def cut_by_value(confidence: Sequence[float], costs: Callable[[int], float]) -> int:
    """Drafts to keep: grow the block while the expected tokens per millisecond rise, and stop at the first fall.

    Looking ahead for a later maximum would let draft i depend on what follows it, and bias sampling.
    costs(k): expected milliseconds of a round that verifies k drafts, the drafting included.
    """
    chance, tokens = 1.0, 1.0
    best = tokens / costs(0)
    for i, c in enumerate(confidence):
        chance *= c
        rate = (tokens + chance) / costs(i + 1)
        if rate < best:
            return i
        tokens, best = tokens + chance, rate
    return len(confidence)

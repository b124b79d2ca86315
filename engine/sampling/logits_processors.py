"""Changes of the target's logits that depend on the tokens before: penalties, bias, and what callers bring along.

A processor sees every row of a verify block with the history that row would have in one-token decoding: the committed
tokens plus the drafts before it. Knows no model and draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.types import Sampling


class Penalties:
    """Presence, frequency and repetition penalties and logit bias, on the device.

    Presence and frequency count generated tokens only (OpenAI's definition); repetition covers prompt and output
    (arXiv 1909.05858).
    """

    needs_draft = False

    def __init__(self, sampling: Sampling, prompt: Sequence[int], vocab: int) -> None:
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._repetition = sampling.repetition_penalty
        self._vocab = vocab
        self._prompt_ids = sorted({t for t in prompt if 0 <= t < vocab}) if self._repetition != 1.0 else []
        self._bias_of = {t: v for t, v in sampling.logit_bias.items() if 0 <= t < vocab}
        self._made = False

    def _make(self) -> None:
        """The arrays belong to the thread that evaluates them, and a request may be made on another one."""
        if self._made:
            return
        self._made = True
        self._counts = mx.zeros((self._vocab,), dtype=mx.float32)
        self._prompt = mx.zeros((self._vocab,), dtype=mx.bool_)
        if self._prompt_ids:
            self._prompt[mx.array(self._prompt_ids, dtype=mx.int32)] = True
        self._bias: mx.array | None = None
        if self._bias_of:
            self._bias = mx.zeros((self._vocab,), dtype=mx.float32)
            self._bias[mx.array(list(self._bias_of), dtype=mx.int32)] = mx.array(
                list(self._bias_of.values()), dtype=mx.float32
            )

    @staticmethod
    def wanted(sampling: Sampling) -> bool:
        return sampling.changes("logits")

    def trim(self, drafts: Sequence[int]) -> int:
        return len(drafts)

    def rows(self, logits: mx.array, drafts: mx.array) -> mx.array:
        self._make()
        width, vocab = logits.shape
        counts = self._counts[None]
        if width > 1:
            seen = mx.zeros((width, vocab), dtype=mx.float32)
            seen = seen.at[mx.arange(1, width), drafts].add(1.0)
            counts = counts + mx.cumsum(seen, axis=0)
        if self._repetition != 1.0:
            scaled = mx.where(logits > 0, logits / self._repetition, logits * self._repetition)
            logits = mx.where((counts > 0) | self._prompt[None], scaled, logits)
        if self._frequency:
            logits = logits - self._frequency * counts
        if self._presence:
            logits = logits - self._presence * (counts > 0)
        return logits if self._bias is None else logits + self._bias

    def commit(self, tokens: Sequence[int]) -> None:
        if tokens:
            self._make()
            self._counts = self._counts.at[mx.array(list(tokens), dtype=mx.int32)].add(1.0)

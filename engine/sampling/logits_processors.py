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
        logits = self._penalised(logits, counts, self._prompt[None])
        return logits if self._bias is None else logits + self._bias

    def _penalised(self, logits: mx.array, counts: mx.array, prompt: mx.array) -> mx.array:
        """Logits of tokens that were generated so often, and whether each is in the prompt."""
        if self._repetition != 1.0:
            scaled = mx.where(logits > 0, logits / self._repetition, logits * self._repetition)
            logits = mx.where((counts > 0) | prompt, scaled, logits)
        if self._frequency:
            logits = logits - self._frequency * counts
        if self._presence:
            logits = logits - self._presence * (counts > 0)
        return logits

    def along(self) -> DraftPenalties:
        """The same for a draft that is about to be made."""
        self._make()
        return DraftPenalties(self, self._counts)

    def of_draft(self, logits: mx.array, counts: mx.array, ids: mx.array | None) -> mx.array:
        """See `DraftPenalties.shaped`."""
        prompt, bias = self._prompt, self._bias
        if ids is not None:
            counts, prompt, bias = counts[ids], prompt[ids], None if bias is None else bias[ids]
        logits = self._penalised(logits.astype(mx.float32), counts, prompt)
        return logits if bias is None else logits + bias

    def commit(self, tokens: Sequence[int]) -> None:
        if tokens:
            self._make()
            self._counts = self._counts.at[mx.array(list(tokens), dtype=mx.int32)].add(1.0)


class DraftPenalties:
    """The request's penalties and bias for a drafter's logits, along one draft: what shapes the target's law shapes the
    drafter's too, or drafts would be refused for what was known beforehand."""

    def __init__(self, penalties: Penalties, counts: mx.array) -> None:
        self._penalties = penalties
        self._counts = counts

    def shaped(self, logits: mx.array, ids: mx.array | None = None) -> mx.array:
        """Logits [V], or [S] of candidate ids [S], as float32, for the draft after those that were taken."""
        return self._penalties.of_draft(logits, self._counts, ids)

    def take(self, token: mx.array) -> None:
        """A token (scalar int32, lazy) was drafted."""
        self._counts = self._counts.at[token].add(1.0)

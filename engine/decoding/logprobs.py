"""Log probabilities of committed tokens, from the target's raw logits: no temperature, no penalties, any drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.backend.host_values import float_table, floats, table
from engine.decoding.verify import Verdict
from engine.types import Logprob


@dataclass(frozen=True, slots=True)
class LogprobRows:
    """Log probabilities of a verify block, from raw logits."""

    chosen: mx.array
    """[K+1] of the token committed at each row."""
    ids: mx.array
    """[K+1, n] best tokens, best first."""
    values: mx.array
    """[K+1, n]."""


def logprob_rows(logits: mx.array, drafts: mx.array, verdict: Verdict, best: int) -> LogprobRows:
    """Log softmax of raw logits [K+1, V] at the tokens that will be committed, and the best n of each row."""
    raw = logits.astype(mx.float32)
    lines = raw - mx.logsumexp(raw, axis=-1, keepdims=True)
    rows = mx.arange(lines.shape[0])
    offered = mx.concatenate([drafts.astype(mx.int32), verdict.token[None]])
    committed = mx.where(rows < verdict.accepted, offered, verdict.token)
    ids = mx.argsort(-lines, axis=-1)[:, :best].astype(mx.int32)
    return LogprobRows(lines[rows, committed], ids, mx.take_along_axis(lines, ids, axis=-1))


def read_logprobs(rows: LogprobRows | None, tokens: Sequence[int]) -> tuple[Logprob, ...]:
    """For the tokens that were committed; the arrays must be evaluated."""
    if rows is None:
        return ()
    chosen, ids, values = floats(rows.chosen), table(rows.ids), float_table(rows.values)
    return tuple(
        Logprob(token, chosen[i], tuple(zip(ids[i], values[i], strict=True))) for i, token in enumerate(tokens)
    )

"""Where prefill should pause so that a state which cannot be cut later is kept there. Pure over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.prefix_cache.radix_tree import Hit

ANCHOR_GAIN = 16
"""Tokens that a divergence point must save before it earns a checkpoint."""
FIRST_RUNG = 2048


class Mark(NamedTuple):
    """A prompt length at which prefill stops to keep a checkpoint, and why."""

    at: int
    kind: Hit


def plan_marks(
    length: int, match_length: int, shared: int, boundaries: Sequence[int], rungs: bool = True
) -> list[Mark]:
    """Marks strictly between match_length and length, ascending.

    `shared` is how far the prompt follows the tree without regard to checkpoints: when that is further than what could
    be restored, the next prompt that parts there should find a checkpoint (an anchor).
    """
    found: dict[int, Hit] = {}
    if rungs:
        step = FIRST_RUNG
        while step < length:
            found[step] = "rung"
            step *= 2
    if shared - match_length >= ANCHOR_GAIN:
        found[shared] = "anchor"
    for at in boundaries:
        found[at] = "boundary"
    if not any(match_length < at < length for at in boundaries):
        # An identical repeat still needs one token to forward.
        found[length - 1] = "boundary"
    return [Mark(at, found[at]) for at in sorted(found) if match_length < at < length]

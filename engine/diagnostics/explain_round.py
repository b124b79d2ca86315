"""What the model and the drafter made of one round, computed again from the tokens before it. For looking only.

One forward over the round's block gives p, and the drafter, shown the same context and made to repeat its drafts, gives
q. Nothing is taken from the round but its tokens, so what is returned can be checked against it. Works on scratch
states; the prefix cache is read and not written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from engine.backend.host_values import float_table, table
from engine.drafters.base import Context, Drafter
from engine.drafters.chain import Chain
from engine.kv_cache.base import State
from engine.prefix_cache.cache import PrefixCache
from engine.sampling.sampler import RowSampler, transform
from engine.targets.base import Target
from engine.types import Round, Sampling

if TYPE_CHECKING:
    from engine.engine import Engine

CHUNK = 256


@dataclass(frozen=True, slots=True)
class Chance:
    """One token at one place."""

    token: int
    p: float
    """Of the model's raw logits: no temperature, no truncation, no penalties."""
    law: float | None = None
    """Under the request's sampling, penalties included; None when greedy, where the best takes all."""
    q: float | None = None
    """Of the drafter; None where no learned drafter proposed."""


@dataclass(frozen=True, slots=True)
class Place:
    """One committed token of the round, and the draft that stood there."""

    chosen: Chance
    draft: Chance | None
    """What was proposed here; the chosen token itself when it was accepted."""
    best: tuple[Chance, ...]
    """The model's best, best first."""
    confidence: float | None = None
    """The drafter's own estimate that its draft is accepted."""


@dataclass(frozen=True, slots=True)
class Examination:
    places: tuple[Place, ...]
    """One a committed token."""
    copied: bool = False
    """The drafts were copied from the text: a point mass, q = 1."""
    note: str = ""
    """Why there is no q, for a person."""
    cached: int = 0
    read: int = 0
    """Tokens that were served by the prefix cache, and that were read again."""


class Replay(RowSampler):
    """Repeats drafts that were made, and keeps the law that each would have been drawn from."""

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], vocab: int, drafted: Sequence[int], start: int
    ) -> None:
        super().__init__(sampling, prompt, vocab)
        self._drafted = drafted
        self._start = start
        self.laws: list[tuple[mx.array | None, mx.array]] = []
        """(ids or None for the whole vocabulary, law) of each draft in turn."""

    def draw(self, logits: mx.array, position: int, ids: mx.array | None = None) -> tuple[mx.array, mx.array | None]:
        law = mx.softmax(logits.astype(mx.float32), precise=True) if self.greedy else transform(logits, self.sampling)
        at = position - self._start
        if at < len(self._drafted):
            self.laws.append((ids, law))
            token = mx.array(self._drafted[at], dtype=mx.int32)
        else:
            pick = mx.argmax(law)
            token = (pick if ids is None else ids[pick]).astype(mx.int32)
        return token, None if self.greedy else law

    def draw_rows(self, logits: mx.array, position: int) -> tuple[mx.array, mx.array | None]:
        drawn = [self.draw(logits[i], position + i) for i in range(logits.shape[0])]
        laws = [law for _, law in drawn if law is not None]
        return mx.stack([token for token, _ in drawn]), mx.stack(laws) if laws else None


def examine(
    engine: Engine, before: Sequence[int], prompt: int, round_: Round, sampling: Sampling, best: int = 5
) -> Examination:
    """Look at a round again. `before`: all tokens before its first one, `prompt` of which were the prompt.

    Waits for the model thread, between two rounds of what is under way.

    Raises:
        ValueError: `before` does not end where the round begins.
    """
    if len(before) != round_.start or not before:
        raise ValueError(f"the round begins at {round_.start}, and {len(before)} tokens are given")
    part, note = _proposer(engine, round_)
    return engine.run_exclusive(
        lambda: _examine(engine.target, engine.options.cache, list(before), prompt, round_, sampling, best, part, note)
    )


def _proposer(engine: Engine, round_: Round) -> tuple[Drafter[Any] | None, str]:
    """The learned part that made the drafts, if one did and is still loaded."""
    if not round_.drafted:
        return None, ""
    chain: Chain | None = engine.chains.get(round_.chain or round_.drafter) or engine.chains.get(round_.drafter)
    part = next((p for p in chain.parts if p.name == round_.drafter), None) if chain else None
    if part is None:
        return None, f"the drafter {round_.drafter} is not loaded"
    return part, ""


def _examine(
    target: Target,
    cache: PrefixCache | None,
    before: list[int],
    prompt: int,
    round_: Round,
    sampling: Sampling,
    best: int,
    part: Drafter[Any] | None,
    note: str,
) -> Examination:
    learned = part if part is not None and part.taps else None
    state, context, cached = _read(target, cache, before[:-1], learned)
    width = 1 + len(round_.drafted)
    with state.begin(width) as transaction:
        body = target.body(mx.array([[before[-1], *round_.drafted]], dtype=mx.int32), state)
        logits = target.logits(body.hidden)[0]
        transaction.abort()
    sampler = RowSampler(sampling, before[:prompt], target.spec.vocab_size)
    sampler.commit(before[prompt:])
    raw = mx.softmax(logits.astype(mx.float32), axis=-1, precise=True)
    law = None if sampling.greedy else sampler.probs(sampler.processed(logits, mx.array(round_.drafted, mx.int32)))
    replay = Replay(sampling, before[:prompt], target.spec.vocab_size, round_.drafted, round_.start)
    replay.commit(before[prompt:])
    confidence: mx.array | None = None
    if learned is not None and context is not None:
        confidence = learned.propose(context, before[-1], max(round_.cap, len(round_.drafted)), replay).confidence
    copied = part is not None and not part.taps
    places = _places(round_, raw, law, replay, confidence, best, copied)
    return Examination(places, copied, note, cached, len(before) - 1 - cached + width)


def _read(
    target: Target, cache: PrefixCache | None, tokens: list[int], part: Drafter[Any] | None
) -> tuple[State, Context | None, int]:
    """A state of `tokens`, the part's context of them, and how many came from the prefix cache."""
    state, context, position = target.new_state(), part.new_context() if part is not None else None, 0
    match = cache.peek(tokens, target.spec.fingerprint, part.name if part is not None else "") if cache else None
    if match is not None and (context is None or _resumes(context, match.context, match.length)):
        position = match.length
        state.restore(match.snapshot, position)
    cached = position
    while position < len(tokens):
        ids = tokens[position : position + CHUNK]
        with state.begin(len(ids), record=False) as transaction:
            body = target.body(mx.array([ids], dtype=mx.int32), state, part.taps if part is not None else ())
            transaction.commit(len(ids))
        if part is not None and context is not None:
            part.observe(context, None if body.taps is None else body.taps[0], position, ids)
        mx.eval(state.arrays(), context.arrays() if context is not None else [])
        position += len(ids)
    return state, context, cached


def _resumes(context: Context, snapshot: Any, length: int) -> bool:
    """Take up a stored context where no row that the drafter could see is missing from it."""
    if snapshot is None or length < getattr(snapshot, "trimmable_from", snapshot.length):
        return False
    context.restore(snapshot, length)
    return context.length == length


def _places(
    round_: Round,
    raw: mx.array,
    law: mx.array | None,
    replay: Replay,
    confidence: mx.array | None,
    best: int,
    copied: bool,
) -> tuple[Place, ...]:
    count = len(round_.tokens)
    ids = mx.argsort(-raw, axis=-1)[:count, :best].astype(mx.int32)
    sure = [] if confidence is None else float_table(confidence.astype(mx.float32)[None])[0]
    mx.eval(ids, raw, [] if law is None else law, [a for _, a in replay.laws])
    places: list[Place] = []
    for row, ranked in enumerate(table(ids)):
        draft = round_.drafted[row] if row < len(round_.drafted) else None
        wanted = [round_.tokens[row], *([] if draft is None else [draft]), *ranked]
        columns = mx.array(wanted, dtype=mx.int32)
        p, under = raw[row, columns], None if law is None else law[row, columns]
        values = float_table(mx.stack([p] if under is None else [p, under]))
        q = _q_of(replay, row, wanted, draft, copied)
        found = [
            Chance(token, values[0][i], values[1][i] if len(values) > 1 else None, q[i])
            for i, token in enumerate(wanted)
        ]
        rest = found[1:] if draft is None else found[2:]
        places.append(Place(found[0], None if draft is None else found[1], tuple(rest), _at(sure, row)))
    return tuple(places)


def _q_of(replay: Replay, row: int, tokens: Sequence[int], draft: int | None, copied: bool) -> list[float | None]:
    if copied:
        return [None if draft is None else float(token == draft) for token in tokens]
    if row >= len(replay.laws):
        return [None] * len(tokens)
    ids, law = replay.laws[row]
    columns = mx.array(list(tokens), dtype=mx.int32)
    if ids is None:
        held = mx.where(columns < law.shape[0], law[mx.minimum(columns, law.shape[0] - 1)], 0.0)
    else:
        held = mx.sum(mx.where(ids[None] == columns[:, None], law[None], 0.0), axis=-1)
    return [value if math.isfinite(value) else None for value in float_table(held[None])[0]]


def _at(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) else None

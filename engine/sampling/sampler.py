"""Logits to distribution, and the draws of one sequence.

`transform` is the one law: plain decoding, drafting and verification all use it. `RowSampler` adds the random numbers
of one request, addressed by what they are for, so that no draw depends on batch neighbours or on call order. Knows no
model, no drafter and no acceptance rule.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import IntEnum

import mlx.core as mx

from engine.sampling.logits_processors import Penalties
from engine.types import Processor, Sampling

_MASK = (1 << 64) - 1

COLDEST = 1e-6
"""Temperature below which a law is that of its best tokens anyway, and logits divided by less would overflow."""


def transform(logits: mx.array, sampling: Sampling) -> mx.array:
    """Probabilities [..., V] float32 of logits [..., V] of any float type, at temperature > 0.

    Temperature, top-k (every tie with the k-th value stays), top-p on the renormalised rest (a token stays when the
    mass ranked before it is < top_p, so the best always stays), min-p relative to the best. Softmax and sums are
    float32: bfloat16 sums of a vocabulary are off by tens of percent.
    """
    logits = logits.astype(mx.float32) / max(sampling.temperature, COLDEST)
    vocab = logits.shape[-1]
    if 0 < sampling.top_k < vocab:
        kth = mx.min(mx.topk(logits, sampling.top_k, axis=-1), axis=-1, keepdims=True)
        logits = mx.where(logits >= kth, logits, -mx.inf)
    probs = mx.softmax(logits, axis=-1, precise=True)
    if sampling.top_p < 1.0:
        order = mx.argsort(-probs, axis=-1)
        ranked = mx.take_along_axis(probs, order, axis=-1)
        before = mx.cumsum(ranked, axis=-1) - ranked
        inside = (before < sampling.top_p) | (before <= 0.0)
        keep = mx.put_along_axis(mx.zeros(probs.shape, dtype=mx.bool_), order, inside, axis=-1)
        probs = mx.where(keep, probs, 0.0)
    if sampling.min_p > 0.0:
        probs = mx.where(probs >= sampling.min_p * mx.max(probs, axis=-1, keepdims=True), probs, 0.0)
    if sampling.top_p < 1.0 or sampling.min_p > 0.0:
        probs = probs / mx.sum(probs, axis=-1, keepdims=True)
    return probs


def log_of(probs: mx.array) -> mx.array:
    """log p with -inf where p is 0: no floor that would leak mass outside the support."""
    return mx.where(probs > 0, mx.log(mx.where(probs > 0, probs, 1.0)), -mx.inf)


class Purpose(IntEnum):
    """What a random number is for: part of its address."""

    COUPLED = 1
    DRAFT = 2
    ACCEPT = 3
    RESIDUAL = 4


def _mix(x: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): a 64-bit bijection with good avalanche."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class RowSampler:
    """The draws and processors of one sequence.

    With a seed the rule is *coupled*: the token at a position is argmax(log p + Gumbel noise of that position), for the
    drafter and the target alike, and a draft is accepted when both agree. Without one it is *rejection* sampling
    (Leviathan et al., arXiv 2211.17192), whose noise is addressed by round and never reused.
    """

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], vocab: int, processors: Sequence[Processor] = ()
    ) -> None:
        self.sampling = sampling
        self.greedy = sampling.greedy
        self.coupled = sampling.seed is not None and not self.greedy
        self.round = 0
        """Set by the loop before each round; part of the address of rejection noise."""
        self.vocab = vocab
        self.processors: list[Processor] = list(processors)
        self.penalties = Penalties(sampling, prompt, vocab) if Penalties.wanted(sampling) else None
        if self.penalties is not None:
            self.processors.insert(0, self.penalties)
        self._base = _mix(secrets.randbits(64) if sampling.seed is None else sampling.seed & _MASK)

    @property
    def needs_draft(self) -> bool:
        return any(p.needs_draft for p in self.processors)

    def key(self, purpose: Purpose, address: int) -> mx.array:
        """PRNG key [2] uint32 for one address (a position when coupled, else a round or round and position)."""
        word = _mix(_mix(self._base ^ int(purpose)) ^ (address & _MASK))
        return mx.array([word >> 32, word & 0xFFFFFFFF], dtype=mx.uint32)

    # The target's side ------------------------------------------------------------------------------------------------

    def processed(self, logits: mx.array, drafts: mx.array) -> mx.array:
        """Target logits [K+1, V] after penalties, bias and constraints along the draft; float32."""
        logits = logits.astype(mx.float32)
        for processor in self.processors:
            logits = processor.rows(logits, drafts)
        return logits

    def probs(self, logits: mx.array) -> mx.array:
        """The request's law of (processed) logits."""
        return transform(logits, self.sampling)

    def noise(self, position: int, rows: int) -> mx.array:
        """Coupled Gumbel noise [rows, V] for positions position, position+1, ..."""
        return mx.stack(
            [
                mx.random.gumbel((self.vocab,), key=self.key(Purpose.COUPLED, position + i), dtype=mx.float32)
                for i in range(rows)
            ]
        )

    def uniforms(self, rows: int) -> mx.array:
        """Acceptance thresholds [rows] in [0, 1) of this round."""
        return mx.random.uniform(shape=(rows,), key=self.key(Purpose.ACCEPT, self.round), dtype=mx.float32)

    def residual_noise(self) -> mx.array:
        """Gumbel noise [V] for the replacement or bonus token of this round."""
        return mx.random.gumbel((self.vocab,), key=self.key(Purpose.RESIDUAL, self.round), dtype=mx.float32)

    def commit(self, tokens: Sequence[int]) -> None:
        for processor in self.processors:
            processor.commit(tokens)

    # The drafter's side -----------------------------------------------------------------------------------------------

    def draw(self, logits: mx.array, position: int, ids: mx.array | None = None) -> tuple[mx.array, mx.array | None]:
        """Draft one token for `position` from logits [V], or from logits [S] of candidate target ids [S].

        Returns the token (scalar int32, lazy) and the float32 law it was drawn from (over the entries of `logits`), or
        None where acceptance does not need it (greedy, coupled). Truncation is the request's own, which keeps q
        close to p.
        """
        q = None
        if self.greedy:
            pick = mx.argmax(logits)
        else:
            law = transform(logits, self.sampling)
            pick = mx.argmax(log_of(law) + self.draft_noise(position, law.shape[-1], ids))
            q = None if self.coupled else law
        token = pick if ids is None else ids[pick]
        return token.astype(mx.int32), q

    def draft_noise(self, position: int, size: int, ids: mx.array | None = None) -> mx.array:
        """Gumbel noise [size] of a draft for `position`, of candidate ids [size] if given."""
        if self.coupled:
            noise = self.noise(position, 1)[0]
            return noise if ids is None else noise[ids]
        address = (self.round << 32) | (position & 0xFFFFFFFF)
        return mx.random.gumbel((size,), key=self.key(Purpose.DRAFT, address), dtype=mx.float32)

    def draw_rows(self, logits: mx.array, position: int) -> tuple[mx.array, mx.array | None]:
        """Independent drafts for positions position.. from logits [K, V]: tokens [K] int32 and q [K, V] or None."""
        if self.greedy:
            return mx.argmax(logits, axis=-1).astype(mx.int32), None
        drawn = [self.draw(logits[i], position + i) for i in range(logits.shape[0])]
        tokens = mx.stack([token for token, _ in drawn])
        laws = [q for _, q in drawn if q is not None]
        return tokens, mx.stack(laws) if laws else None


class Draws:
    """The drafts of sequences that draft together, k each: every one draws with its own sampler's law and noise, those
    of one law at once.

    Rows are stacked block by block: draft i of sequence b stands in row b * k + i.
    """

    def __init__(self, samplers: Sequence[RowSampler], positions: Sequence[int], k: int) -> None:
        """positions: of the first draft of each."""
        self.k = k
        self._samplers, self._positions = samplers, positions
        laws = {sampler.sampling.at("law") for sampler in samplers}
        self._together = len(samplers) > 1 and (len(laws) == 1 or all(sampler.greedy for sampler in samplers))
        self._along = [None if s.penalties is None else s.penalties.along() for s in samplers]
        self._steps: list[mx.array] = []
        self._tokens: mx.array | None = None
        self._laws: list[list[mx.array]] = [[] for _ in samplers]
        self._whole: list[mx.array | None] = [None for _ in samplers]
        self._sounds: list[mx.array] = []
        self._sound: mx.array | None = None

    def next(self, logits: mx.array, ids: mx.array | None = None) -> mx.array:
        """The next draft of each from logits [B, S], of candidate ids [S] or [B, S] if given: tokens [B] int32."""
        step = len(self._steps)
        self._sounds += self._look(logits)
        logits = self._shaped(logits, ids)
        if self._together:
            tokens = self._at_once(logits, step, ids)
        else:
            drawn: list[mx.array] = []
            for b, (sampler, position) in enumerate(zip(self._samplers, self._positions, strict=True)):
                token, law = sampler.draw(logits[b], position + step, _of_row(ids, b))
                drawn.append(token)
                if law is not None:
                    self._laws[b].append(law)
            tokens = mx.stack(drawn)
        for b, along in enumerate(self._along):
            if along is not None:
                along.take(tokens[b])
        self._steps.append(tokens)
        return tokens

    def _shaped(self, logits: mx.array, ids: mx.array | None) -> mx.array:
        """Logits [B, S] after what each request asks of the drafts before."""
        if not any(self._along):
            return logits
        rows = [
            logits[b].astype(mx.float32) if along is None else along.shaped(logits[b], _of_row(ids, b))
            for b, along in enumerate(self._along)
        ]
        return mx.stack(rows)

    def _at_once(self, logits: mx.array, step: int, ids: mx.array | None) -> mx.array:
        """`RowSampler.draw` for each, in one piece."""
        if not self._samplers[0].greedy:
            law = transform(logits, self._samplers[0].sampling)
            noise: list[mx.array] = []
            for b, (sampler, position) in enumerate(zip(self._samplers, self._positions, strict=True)):
                noise.append(sampler.draft_noise(position + step, law.shape[-1], _of_row(ids, b)))
                if not sampler.coupled:
                    self._laws[b].append(law[b])
            logits = log_of(law) + mx.stack(noise)
        picks = mx.argmax(logits, axis=-1)
        if ids is not None:
            picks = ids[picks] if ids.ndim == 1 else mx.take_along_axis(ids, picks[:, None], axis=-1)[:, 0]
        return picks.astype(mx.int32)

    def all(self, logits: mx.array) -> None:
        """Every draft from logits [B * k, V] that do not depend on the drafts before, though a penalty may."""
        if any(self._along) or (self._together and not self._samplers[0].greedy):
            for i in range(self.k):
                self.next(logits[i :: self.k])
            return
        self._sound = next(iter(self._look(logits)), None)
        if self._together:
            self._tokens = mx.argmax(logits, axis=-1).astype(mx.int32)
            return
        rows: list[mx.array] = []
        for b, (sampler, position) in enumerate(zip(self._samplers, self._positions, strict=True)):
            tokens, self._whole[b] = sampler.draw_rows(logits[b * self.k : (b + 1) * self.k], position)
            rows.append(tokens)
        self._tokens = rows[0] if len(rows) == 1 else mx.concatenate(rows)

    def _look(self, logits: mx.array) -> list[mx.array]:
        """Whether there are numbers to draw from, row by row: their maximum is NaN or infinite otherwise. A law that is
        reported tells by itself, so that only greedy and coupled drafts need the look."""
        if not any(sampler.greedy or sampler.coupled for sampler in self._samplers):
            return []
        return [mx.isfinite(mx.max(logits, axis=-1))]

    def sound(self, b: int, keep: int) -> mx.array | None:
        """[keep] bool of one sequence, see `Proposal.sound`."""
        if self._sound is None and self._sounds:
            self._sound = interleave(self._sounds)
        return None if self._sound is None else self._sound[b * self.k : b * self.k + keep]

    def of(self, b: int, keep: int) -> tuple[mx.array, mx.array | None]:
        """The first `keep` drafts of one sequence, and the laws [keep, S] they were drawn from (None: not needed)."""
        if self._tokens is None:
            self._tokens = interleave(self._steps)
        law = self._whole[b]
        if self._laws[b] and keep:
            law = mx.stack(self._laws[b][:keep])
        return self._tokens[b * self.k : b * self.k + keep], law[:keep] if law is not None and keep else None


def _of_row(ids: mx.array | None, b: int) -> mx.array | None:
    """The candidate ids of one sequence, of ids [S] for all or [B, S]."""
    return ids[b] if ids is not None and ids.ndim > 1 else ids


def interleave(steps: Sequence[mx.array]) -> mx.array:
    """k arrays [B, ...], one a step, as one [B * k, ...], block by block."""
    if steps[0].shape[0] == 1:
        return mx.concatenate(list(steps))
    return mx.flatten(mx.stack(list(steps), axis=1), 0, 1)

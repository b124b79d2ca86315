"""The decode loop. There is one: plain decoding is a chain without parts, a batch is more rows.

    propose -> verify -> accept -> [one synchronisation] -> finish -> commit -> observe

Knows no family, no drafter, no template and no queue. Invariants at the start of a round: the state holds tokens[:-1]
of each row, every context of a row's chain covers the same positions, and pending is tokens[-1].
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence as Seq

import mlx.core as mx

from engine.backend.host_values import ints, table
from engine.decoding.batch import Batch, Flight, Row, blamed
from engine.decoding.logprobs import logprob_rows, read_logprobs
from engine.decoding.overlap import Idle
from engine.decoding.propose import Drafting, plain
from engine.decoding.sequence import Sequence
from engine.decoding.verify import Fault, accept
from engine.drafters.chain import Chain
from engine.errors import BrokenLogits, UsageError
from engine.targets.base import Target
from engine.types import Event, Finished, Round, Source, Tokens

log = logging.getLogger("dspark.loop")


class Loop:
    """Runs rounds on one target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.drafting = Drafting()
        self._evaluations = 0
        self._settled, self._tail = 0.0, 0.0
        """When the last round was over, and its milliseconds after its record: they count in the next one's."""
        self.idle = Idle()
        self.flip: int | None = None
        """Test hook: add this to one accepted draft of each round, which makes decoding lossy."""

    @property
    def evaluations(self) -> int:
        """Device synchronisations so far; one a round, and one for each draft that a constraint had to see."""
        return self._evaluations + self.drafting.evaluations

    # One round --------------------------------------------------------------------------------------------------------

    def step(self, batch: Batch) -> list[Event]:
        """One round for every row. Returns the events, in order; rows that ended carry `finish.reason`."""
        if batch.ahead is not None and any(s.wants_switch for s in batch.sequences):
            batch.settle_ahead()
        flight, batch.ahead = batch.ahead or self._dispatch(batch), None
        try:
            if self._may_run_ahead(flight):
                self._run_ahead(batch, flight)
            return self._settle(batch, flight)
        except BaseException:
            batch.settle_ahead()
            flight.transaction.abort()
            raise

    def first(self, sequence: Sequence, hidden: mx.array) -> list[Event]:
        """The round that turns the prefill's last row [1, 1, H] into the first token."""
        began = time.perf_counter()
        self._tail = 0.0
        sequence.sampler.round = sequence.rounds
        logits = self.target.logits(hidden)[0]
        row = plain(sequence)
        packed = self._judge(row, logits, 1)
        self._evaluate(packed, [row])
        sequence.started = time.perf_counter()
        values = ints(packed)
        if error := _failure(values[2]):
            raise error
        return self._deliver(row, values, began, 0.0, 1, 1)[1]

    # 1. Propose and verify: graph only --------------------------------------------------------------------------------

    def _dispatch(self, batch: Batch, pending: mx.array | None = None) -> Flight:
        """Build the round. `pending` [B] lazy stands in for tokens not yet read, when running ahead."""
        assert batch.state is not None
        began = time.perf_counter()
        ahead = pending is not None
        for sequence in batch.sequences:
            sequence.sampler.round = sequence.rounds + int(ahead)
        rows = [plain(s) for s in batch.sequences] if ahead else self.drafting.rows(batch.sequences)
        drafted = time.perf_counter()
        width = 1 + max(len(row.proposal) for row in rows)
        heads = [None if pending is None else pending[i : i + 1] for i in range(len(rows))]
        ids = mx.stack([self._ids(row, width, head) for row, head in zip(rows, heads, strict=True)])
        layers = tuple(sorted({t for row in rows for t in row.sequence.chain.taps}))
        transaction = batch.state.begin(width)
        try:
            body = self.target.body(ids, batch.state, layers)
            logits = self.target.logits(body.hidden)
            packed: list[mx.array] = []
            for i, row in enumerate(rows):
                with blamed(row.sequence):
                    packed.append(self._judge(row, logits[i], width, int(ahead)))
        except BaseException:
            transaction.abort()
            raise
        flight = Flight(rows, transaction, mx.stack(packed), body.taps, layers, width, began, (drafted - began) * 1e3)
        flight.build_ms = (time.perf_counter() - began) * 1e3
        return flight

    @staticmethod
    def _ids(row: Row, width: int, pending: mx.array | None) -> mx.array:
        """[width] int32: pending, the drafts, and padding that is never committed."""
        head = mx.array([row.sequence.pending], dtype=mx.int32) if pending is None else pending
        missing = width - 1 - len(row.proposal)
        return mx.concatenate([head, row.proposal.tokens.astype(mx.int32), mx.zeros((missing,), dtype=mx.int32)])

    def _judge(self, row: Row, logits: mx.array, width: int, ahead: int = 0) -> mx.array:
        """[3 + width - 1] int32: accepted, token, faults, drafts, padding; also sets the row's log probabilities."""
        sequence, k = row.sequence, len(row.proposal)
        logits = logits[: k + 1]
        verdict = accept(logits, row.proposal, sequence.sampler, len(sequence.tokens) + ahead)
        if sequence.request.logprobs is not None:
            row.logprobs = logprob_rows(logits, row.proposal.tokens, verdict, sequence.request.logprobs)
        drafts = row.proposal.tokens.astype(mx.int32)
        padding = mx.zeros((width - 1 - k,), dtype=mx.int32)
        return mx.concatenate([mx.stack(list(verdict)), drafts, padding])

    # 2. Run ahead: the next plain round starts before this one is read ---

    def _may_run_ahead(self, flight: Flight) -> bool:
        """Where nothing on the host has a say in the next round."""
        idle = self.idle.share
        quiet: list[bool] = []
        for row in flight.rows:
            with blamed(row.sequence):
                quiet.append(row.sequence.quiet(flight.plain, len(flight.rows), idle))
        return all(quiet) and all(
            not row.sequence.sampler.processors
            and row.sequence.request.logprobs is None
            and row.sequence.remaining > 1
            and not row.sequence.cancelled
            for row in flight.rows
        )

    def _run_ahead(self, batch: Batch, flight: Flight) -> None:
        flight.transaction.commit(1)
        flight.committed = True
        # From here on the round under way can no longer be undone, and its tokens are not read yet: what fails in the
        # next one must not take it along. It fails again when it is asked for on its own, and then undoes nothing.
        try:
            batch.ahead = self._dispatch(batch, flight.packed[:, 1])
            mx.async_eval(batch.ahead.packed)
        except Exception:
            log.warning("a round could not be started ahead of the one before it", exc_info=True)
            batch.settle_ahead()

    # 3. Read, finish, commit, observe ---

    def _evaluate(self, packed: mx.array, rows: Seq[Row]) -> None:
        self._evaluations += 1
        wanted = [row.logprobs for row in rows if row.logprobs is not None]
        mx.eval(packed, *[a for w in wanted for a in (w.chosen, w.ids, w.values)])

    def _settle(self, batch: Batch, flight: Flight) -> list[Event]:
        assert batch.state is not None
        self._evaluate(flight.packed, flight.rows)
        read = time.perf_counter()
        # A round that ran ahead began inside the one before it; it counts from that one's end: rounds tile time.
        began = max(flight.began, self._settled)
        verify_ms = (read - began) * 1e3 - (flight.draft_ms if began == flight.began else 0.0)
        events: list[Event] = []
        kept: list[Round | None] = []
        for row, numbers in zip(flight.rows, table(flight.packed), strict=True):
            error = _failure(numbers[2])
            if error is not None and not numbers[0]:  # what was accepted before is delivered; the next round says it
                row.sequence.fail(error)
                kept.append(None)
                continue
            if numbers[2] & Fault.DRAFTER and row.part is not None:
                row.sequence.distrust(row.part)
            round_, delivered = self._deliver(
                row, numbers, read, flight.draft_ms, flight.width, len(flight.rows), verify_ms
            )
            kept.append(round_)
            events += delivered
        delivered_at = time.perf_counter()
        if not flight.committed:
            flight.transaction.commit([len(round_.tokens) if round_ else 0 for round_ in kept])
        for i, (row, round_) in enumerate(zip(flight.rows, kept, strict=True)):
            if round_ is not None:
                self._observe(row.sequence, round_, flight, i)
        if any(row.sequence.finish.reason for row in flight.rows):
            batch.settle_ahead()
        self._settled = time.perf_counter()
        self._tail = (self._settled - delivered_at) * 1e3
        if flight.plain:
            self.idle.observe(flight.build_ms, (self._settled - read) * 1e3, (self._settled - began) * 1e3)
        return events

    def _deliver(
        self,
        row: Row,
        numbers: Seq[int],
        read: float,
        draft_ms: float,
        width: int,
        rows: int,
        verify_ms: float = 0.0,
    ) -> tuple[Round, list[Event]]:
        """Commit the round's tokens, and record what was committed."""
        sequence, k = row.sequence, len(row.proposal)
        accepted, token, drafts = numbers[0], numbers[1], list(numbers[3 : 3 + k])
        if self.flip is not None and accepted:
            drafts[0] = (drafts[0] + self.flip) % self.target.spec.vocab_size
        offered = [*drafts[:accepted], token] if numbers[2] < Fault.TARGET else drafts[:accepted]
        start = len(sequence.tokens)
        tokens = _commit(sequence, offered, accepted, row.proposal.source)
        round_ = Round(
            request=sequence.request.id,
            index=sequence.rounds,
            start=start,
            tokens=tokens,
            drafted=tuple(drafts),
            accepted=min(accepted, len(tokens)),
            source=row.proposal.source if k else Source.TARGET,
            drafter=row.part.name if row.part else sequence.chain.name,
            chain=sequence.chain.name,
            cap=row.cap,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            host_ms=(time.perf_counter() - read) * 1e3 + self._tail,
            width=width,
            rows=rows,
            depth=start - 1,
            logprobs=read_logprobs(row.logprobs, tokens),
        )
        sequence.rounds += 1
        sequence.count(round_)
        pieces = sequence.finish.take()
        events: list[Event] = [round_]
        if pieces:
            events.append(Tokens(sequence.request.id, pieces))
        return round_, events

    def _observe(self, sequence: Sequence, round_: Round, flight: Flight, row: int) -> None:
        """Show the kept rows to every part of the chain, then let the policy learn."""
        rows = len(round_.tokens)
        start = round_.start - 1
        ids = sequence.tokens[start : start + rows]
        taps = None if flight.taps is None else flight.taps[row, :rows]
        observe(sequence, sequence.chain, taps, flight.layers, start, ids, self.target.spec.hidden_size)
        by = {part.name: part for part in sequence.chain.parts}
        part = by.get(round_.drafter) or (sequence.chain.parts[0] if sequence.chain.parts else None)
        if part is not None:
            sequence.policy.learn(sequence.view(part, len(flight.rows)), round_)


def _failure(faults: int) -> Exception | None:
    """Why there is no token, if so."""
    if faults & Fault.TARGET:
        return BrokenLogits(
            "The model's output is no longer a number (NaN or infinite), so that no token can follow: its weights are "
            "damaged, or too large for their number format; download it again, or use another conversion of it."
        )
    if faults & Fault.SETTINGS:
        return UsageError(
            "The logit bias, the penalties or the grammar of this request leave no token that can follow; loosen them."
        )
    return None


def _commit(sequence: Sequence, offered: Seq[int], accepted: int, source: Source) -> tuple[int, ...]:
    """Take a round's tokens through the finish logic one by one; what the sequence keeps. The first `accepted` come
    from `source`, what follows from the target."""
    start, count = len(sequence.tokens), 0
    for i, value in enumerate(offered):
        count += 1
        if sequence.finish.push(value, source if i < accepted else Source.TARGET, start + i, sequence.rounds):
            break
    tokens = tuple(offered[:count])
    sequence.tokens += tokens
    sequence.sampler.commit(tokens)
    return tokens


def observe(
    sequence: Sequence,
    chain: Chain,
    taps: mx.array | None,
    layers: tuple[int, ...],
    start: int,
    ids: Seq[int],
    hidden: int,
) -> None:
    """Give rows that are now in the state to each part of a chain. taps [n, len(layers) * H]."""
    for part in chain.parts:
        mine = None
        if part.taps:
            assert taps is not None
            mine = taps if part.taps == layers else columns(taps, layers, part.taps, hidden)
        part.observe(sequence.context(part), mine, start, ids)


def columns(taps: mx.array, layers: tuple[int, ...], wanted: tuple[int, ...], hidden: int) -> mx.array:
    """The features [n, len(wanted) * H] of some of the tapped layers."""
    return mx.concatenate([taps[:, layers.index(t) * hidden : (layers.index(t) + 1) * hidden] for t in wanted], axis=-1)


def finished(sequence: Sequence, reason: str | None = None) -> Finished:
    """The closing event of a sequence that ended in order."""
    return Finished(
        sequence.request.id,
        reason or sequence.finish.reason or "cancel",  # pyright: ignore[reportArgumentType]
        sequence.usage,
        tuple(sequence.tokens[len(sequence.request.prompt) :]),
        sequence.finish.text,
        sequence.finish.stop,
    )

"""The model thread: which sequence is read, which rows decode, who leaves, and what runs in between.

All MLX work of an engine happens here, on one thread (MLX streams belong to threads). Between two ticks the thread runs
whatever was asked of it exclusively: loading, calibration, a race. Knows no template, no socket and no screen.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import mlx.core as mx

from engine import backend
from engine.decoding.admission import Admission, Need
from engine.decoding.batch import Batch, RowFailed
from engine.decoding.loop import finished
from engine.decoding.plan import Plan
from engine.decoding.prefill import Prefill, catch_up, remember
from engine.decoding.sequence import Sequence
from engine.errors import EngineClosed
from engine.kv_cache.base import State
from engine.types import Event, Failed, Tokens

T = TypeVar("T")
log = logging.getLogger("dspark.scheduler")

OVERTAKE, OVERTAKEN = 4, 8
"""A prompt may be read before another one that has at least so many times as much left to read; so often at most."""
CLEAR_EVERY = 512
"""Rounds between returns of the allocator's pool to the system."""


class Scheduler:
    """Owns the thread and the rows. Every public method may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: deque[Sequence] = deque()
        self._prefill: Prefill | None = None
        self._paused: list[Prefill] = []
        """Long prompts that shorter ones overtook; the last one goes on first."""
        self._batch = Batch()
        self._plan: Plan | None = None
        self._rounds = 0
        self._closed = False
        self._thread = threading.Thread(target=self._main, name="dspark-model", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # From any thread --------------------------------------------------------------------------------------------------

    def run_exclusive(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the model thread between two rounds. Its result, or its exception, is the future's."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  the caller's future carries it
                future.set_exception(error)

        self._post(job)
        return future

    def use(self, plan: Plan | None) -> None:
        """Decode with this from now on; call through run_exclusive with no rows active."""
        self._plan = plan

    def submit(self, sequence: Sequence) -> None:
        self._post(lambda: self._waiting.append(sequence))

    def wake(self) -> None:
        """Make the thread look at cancellations now."""
        if not self._closed:
            self._inbox.put(lambda: None)

    def close(self, timeout: float | None = 10.0) -> None:
        """Cancel what is under way, end the thread, wait for it."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
            atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    @property
    def load(self) -> tuple[int, int]:
        """(running, waiting) requests, for gauges; may be a moment old."""
        return len(self._batch.sequences) + self._reading, len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes that the requests under way may come to take, for gauges; may be a moment old."""
        plan = self._plan
        return plan.admission.bytes(self._needs(plan.admission)) if plan is not None and plan.admission else 0

    def _needs(self, admission: Admission) -> list[Need]:
        reading = [p.sequence for p in (self._prefill, *self._paused) if p is not None]
        return [_need(admission, s) for s in (*self._batch.sequences, *reading)]

    @property
    def _reading(self) -> int:
        return (self._prefill is not None) + len(self._paused)

    def _post(self, job: Callable[[], None]) -> None:
        if self._closed:
            raise EngineClosed("The engine is closed; load the model again.")
        self._inbox.put(job)

    # On the model thread ----------------------------------------------------------------------------------------------

    def _main(self) -> None:
        backend.compute_thread()
        try:
            self._run()
        finally:
            self._batch, self._prefill, self._plan = Batch(), None, None
            self._paused.clear()
            backend.release_thread()

    def _run(self) -> None:
        while True:
            busy = bool(self._waiting or self._reading or self._batch.sequences)
            try:
                job = self._inbox.get(block=not busy)
            except queue.Empty:
                self._tick()
                continue
            if job is None:
                self._shut()
                return
            job()

    def _tick(self) -> None:
        """Drop the cancelled, read one chunk, or as much as those that decode can wait for, decode one round of all
        rows. Short prompts that came together are thus read together, and then decode together."""
        began = self._clock()
        while True:
            self._drop_cancelled()
            spent = (self._clock() - began) * 1e3
            self._read_guarded(spent)
            if not (self._batch.sequences and self._can_prefill_more((self._clock() - began) * 1e3)):
                break
        if self._batch.sequences:
            self._decode()

    def _can_prefill_more(self, spent_ms: float) -> bool:
        reading = self._prefill is not None or bool(self._paused) or self._can_read()
        return reading and self._plan is not None and self._plan.pace.goes_on(spent_ms)

    def _read_guarded(self, spent_ms: float) -> None:
        try:
            self._read(spent_ms)
        except Exception as error:  # noqa: BLE001  the edge of a request: it fails, the engine goes on
            prefill, self._prefill = self._prefill, None
            if prefill is not None:
                self._fail(prefill.sequence, error)

    def _emit(self, sequence: Sequence, event: Event) -> None:
        try:
            sequence.listener(event)
        except Exception:  # a front end's fault must not stop the other rows
            log.exception("a listener failed; its request is cancelled")
            sequence.cancelled = True

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        log.warning("request %s failed: %s", sequence.request.id, error, exc_info=error)
        self._emit(sequence, Failed(sequence.request.id, error, sequence.usage))

    def _drop_cancelled(self) -> None:
        for sequence in [s for s in self._waiting if s.cancelled]:
            self._waiting.remove(sequence)
            self._emit(sequence, finished(sequence, "cancel"))
        for prefill in [p for p in (self._prefill, *self._paused) if p is not None and p.sequence.cancelled]:
            if prefill is self._prefill:
                self._prefill = None
            else:
                self._paused.remove(prefill)
            self._keep(prefill.keep)
            self._emit(prefill.sequence, finished(prefill.sequence, "cancel"))
        gone = [s for s in self._batch.sequences if s.cancelled]
        if gone:
            self._retire(gone, "cancel")

    # Reading ----------------------------------------------------------------------------------------------------------

    def _can_read(self) -> bool:
        plan = self._plan
        if plan is None or not self._waiting or len(self._batch.sequences) + self._reading >= plan.max_batch:
            return False
        first, admission = self._waiting[0], plan.admission
        if admission is not None and not admission.fits(self._needs(admission), _need(admission, first)):
            return False  # what came later waits behind it, or a large request would never have its turn
        return self._prefill is None or self._prefill.gives_way(len(first.tokens), OVERTAKE, OVERTAKEN)

    def _read(self, spent_ms: float) -> None:
        plan = self._plan
        if plan is None:
            while self._waiting:
                self._fail(self._waiting.popleft(), EngineClosed("No model is loaded."))
            return
        if self._prefill is None and self._paused:
            self._prefill = self._paused.pop()
            self._prefill.resume()
        if self._can_read():
            if self._prefill is not None:
                self._prefill.pause()
                self._paused.append(self._prefill)
                self._prefill = None
            sequence = self._waiting.popleft()
            try:
                self._prefill = Prefill(plan.target, sequence, plan.cache, plan.chunk)
            except Exception as error:  # noqa: BLE001  the edge of a request: it waits no more, so nobody else tells it
                self._fail(sequence, error)
                return
            self._forward(sequence, self._prefill.start())
        if self._prefill is None:
            return
        self._read_chunk(plan, self._prefill, spent_ms)
        if self._prefill.done:
            prefill, self._prefill = self._prefill, None
            self._admit(plan, prefill)

    def _read_chunk(self, plan: Plan, prefill: Prefill, spent_ms: float) -> None:
        """One chunk, as long as those that decode can wait for it."""
        most = plan.pace.tokens(plan.chunk, waited_for=bool(self._batch.sequences), spent_ms=spent_ms)
        began, position = self._clock(), prefill.position
        events = prefill.step(most)
        plan.pace.learn(prefill.position - position, (self._clock() - began) * 1e3)
        self._forward(prefill.sequence, events)

    def _admit(self, plan: Plan, prefill: Prefill) -> None:
        sequence = prefill.sequence
        try:
            self._forward(sequence, plan.loop.first(sequence, prefill.hidden))
        except Exception as error:  # noqa: BLE001  the edge of a request
            self._fail(sequence, error)
            return
        if sequence.finish.reason:
            self._remember_turn(sequence, prefill.state, 0)
            self._emit(sequence, finished(sequence))
            return
        try:
            self._batch.join(sequence, prefill.state)
        except Exception as error:  # noqa: BLE001  the edge of a request: those that decode go on
            self._fail(sequence, error)

    def _forward(self, sequence: Sequence, events: list[Event]) -> None:
        for event in events:
            self._emit(sequence, event)

    # Decoding ---------------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        plan, batch = self._plan, self._batch
        assert plan is not None
        by = {s.request.id: s for s in batch.sequences}
        try:
            self._switch(plan)
            for event in plan.loop.step(batch):
                self._emit(by[event.request], event)
        except RowFailed as failure:  # the round was undone; the other rows repeat it without this one
            batch.leave([failure.sequence])
            self._fail(failure.sequence, failure.cause)
            return
        except Exception as error:  # noqa: BLE001  the rows of this round fail; the engine, the queue and the cache go on
            rows, self._batch = batch.sequences, Batch()
            for sequence in rows:
                self._fail(sequence, error)
            return
        self._retire([s for s in batch.sequences if s.finish.reason], None)
        self._rounds += 1
        if self._rounds % CLEAR_EVERY == 0:
            mx.clear_cache()

    def _switch(self, plan: Plan) -> None:
        """Take up wishes for another drafter; a part that joins late is brought up to date first."""
        batch = self._batch
        if not any(s.wants_switch for s in batch.sequences):
            return
        batch.settle_ahead()
        state = batch.state
        assert state is not None
        for i, sequence in enumerate(batch.sequences):
            if sequence.switch():
                for part in sequence.chain.parts:
                    catch_up(plan.target, sequence, part, len(sequence.tokens) - 1, lambda row=i: state.snapshot(row))

    def _retire(self, gone: list[Sequence], reason: str | None) -> None:
        if not gone:
            return
        state = self._batch.state
        self._batch.settle_ahead()
        for sequence in gone:
            if state is not None and sequence.error is None:
                self._remember_turn(sequence, state, self._batch.sequences.index(sequence))
            if reason == "cancel":
                sequence.finish.abandon()
                pieces = sequence.finish.take()
                if pieces:
                    self._emit(sequence, Tokens(sequence.request.id, pieces))
        self._batch.leave(gone)
        for sequence in gone:
            if sequence.error is not None:
                self._fail(sequence, sequence.error)
            else:
                self._emit(sequence, finished(sequence, reason))

    def _remember_turn(self, sequence: Sequence, state: State, row: int) -> None:
        plan = self._plan
        if plan is None or plan.cache is None or not sequence.request.remember:
            return
        if not sequence.keeps_reply and not all(layer.kind == "append" for layer in state.layers):
            # The next prompt will not contain this turn as it was, and such a state cannot be cut to where it does.
            return
        cache = plan.cache
        self._keep(lambda: remember(cache, plan.target, sequence, state, row, state.lengths[row], "turn"))

    def _keep(self, store: Callable[[], None]) -> None:
        try:
            store()
        except Exception:  # a cache that cannot keep something must not cost the answer
            log.exception("the prefix cache could not keep a turn")

    def _shut(self) -> None:
        for sequence in [*self._waiting, *self._batch.sequences]:
            sequence.cancelled = True
        for prefill in (self._prefill, *self._paused):
            if prefill is not None:
                prefill.sequence.cancelled = True
        self._drop_cancelled()


def _need(admission: Admission, sequence: Sequence) -> Need:
    request = sequence.request
    return admission.need(len(request.prompt), request.max_tokens, sequence.chain)

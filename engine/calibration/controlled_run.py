"""Rounds under control: one sequence on the real loop, with the draft length of each round chosen from outside.

Calibration, benchmarks and races measure what users run, so they run it: the same prefill, loop, states and drafters.
Must be used on the model thread.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Seq
from typing import Any

import mlx.core as mx

from engine.chat.tokenizer import Tokenizer
from engine.decoding.batch import Batch
from engine.decoding.draft_length.policy import CapPolicy, RowView
from engine.decoding.loop import Loop
from engine.decoding.prefill import Prefill, default_chunk
from engine.decoding.sequence import Sequence
from engine.decoding.stopping import Finish
from engine.drafters.base import Context
from engine.drafters.chain import Chain
from engine.kv_cache.quantized import QuantKV
from engine.sampling.sampler import RowSampler
from engine.targets.base import Target
from engine.types import Event, Prefilled, Proposal, Request, Round, Source


class Dial:
    """A policy that does what it is told, one round at a time."""

    def __init__(self) -> None:
        self.cap = 0

    def limit(self, view: RowView) -> int:
        return min(self.cap, view.max_draft)

    def rests(self, view: RowView) -> bool:
        return False

    def learn(self, view: RowView, round: Round) -> None:
        pass


class Positions:
    """Context of a part that remembers nothing but how far it came."""

    length = 0

    def snapshot(self) -> Any:
        return self

    def restore(self, snap: Any, length: int) -> None:
        self.length = length

    def arrays(self) -> list[mx.array]:
        return []


class Scripted:
    """A drafter that proposes prepared ids for free: what its rounds cost is the target's and the loop's."""

    source = Source.DRAFT

    def __init__(self, ids: Seq[int], taps: tuple[int, ...] = (), longest: int = 64, name: str = "scripted") -> None:
        self.name = name
        self.taps = taps
        self.max_draft = longest
        self._ids = itertools.cycle(ids)

    def new_context(self) -> Positions:
        return Positions()

    def context_bytes(self, length: int) -> int:
        return 0

    def observe(self, context: Context, taps: mx.array | None, start: int, ids: Seq[int]) -> None:
        assert isinstance(context, Positions)
        context.length = start + len(ids)

    def silent(self, context: Context, pending: int) -> bool:
        return False

    def propose(self, context: Context, pending: int, k: int, sampler: RowSampler) -> Proposal:
        return Proposal(mx.array(list(itertools.islice(self._ids, k)), dtype=mx.int32), self.source, drafter=self.name)


class Run:
    """One request decoded round by round. `events` is all that it emitted."""

    def __init__(
        self,
        loop: Loop,
        tokenizer: Tokenizer,
        chain: Chain,
        request: Request,
        policy: CapPolicy | None = None,
        *,
        filler: Seq[int] = (),
    ) -> None:
        """filler: ids to pretend to have read after the prompt, with random memories (depth without its price)."""
        target = loop.target
        self.loop = loop
        self.policy = policy or Dial()
        self.events: list[Event] = []
        room = max(1, target.spec.context - len(request.prompt) - len(filler))
        self.sequence = Sequence(
            request,
            sampler=RowSampler(request.sampling, request.prompt, target.spec.vocab_size, request.processors),
            finish=Finish(
                tokenizer,
                stop_ids=target.spec.stop_ids if request.stop_ids is None else request.stop_ids,
                stop=request.stop,
                max_tokens=request.max_tokens,
                room=room,
            ),
            chain=chain,
            chains={chain.name: chain},
            policies=lambda _cap, _chain: self.policy,
            listener=self.events.append,
        )
        self.batch = Batch()
        self.wall_ms = 0.0
        self.cpu_ms = 0.0
        """Processor time of the whole process in rounds: on the CPU backend it says what wall time would on an idle
        machine, however busy this one is."""
        self._read(target, filler)

    def _read(self, target: Target, filler: Seq[int]) -> None:
        prefill = Prefill(target, self.sequence, None, default_chunk())
        prefill.start()
        while not prefill.done:
            self.events += [e for e in prefill.step() if isinstance(e, Prefilled)]
        if filler:
            _deepen(prefill, filler)
        self.events += self.loop.first(self.sequence, prefill.hidden)
        self.batch.join(self.sequence, prefill.state)

    @property
    def done(self) -> bool:
        return self.sequence.finish.reason is not None

    @property
    def depth(self) -> int:
        return len(self.sequence.tokens) - 1

    def dial(self, cap: int) -> None:
        """Draft length from the next round on, where no policy was given."""
        if isinstance(self.policy, Dial):
            self.policy.cap = cap

    def step(self, cap: int | None = None) -> Round:
        """One round; its whole time on the clock is added to `wall_ms`."""
        if cap is not None:
            self.dial(cap)
        began, used = time.perf_counter(), time.process_time()
        events = self.loop.step(self.batch)
        self.last_ms = (time.perf_counter() - began) * 1e3
        self.cpu_ms += (time.process_time() - used) * 1e3
        self.wall_ms += self.last_ms
        self.events += events
        if self.done:
            self.batch.settle_ahead()
        if self.sequence.error is not None:
            raise self.sequence.error
        return next(e for e in events if isinstance(e, Round))

    def finish(self) -> list[Round]:
        """Decode to the end."""
        while not self.done:
            self.step()
        return self.rounds

    @property
    def rounds(self) -> list[Round]:
        return [e for e in self.events if isinstance(e, Round)]

    @property
    def tokens(self) -> tuple[int, ...]:
        """All ids delivered."""
        return tuple(self.sequence.tokens[len(self.sequence.request.prompt) :])

    @property
    def prefill_ms(self) -> float:
        return sum(e.ms for e in self.events if isinstance(e, Prefilled))


def _deepen(prefill: Prefill, filler: Seq[int]) -> None:
    """Append random rows to the layers that grow; layers of fixed size cost the same at any depth."""
    state, n = prefill.state, len(filler)
    for layer in state.layers:
        if layer.kind in ("append", "window"):
            buffers = layer.arrays()
            dims = layer.dims if isinstance(layer, QuantKV) else tuple(b.shape[3] for b in buffers)
            dtype = buffers[-1].dtype  # packed keys are integers, what stands beside them is not
            keys, values = (
                mx.random.normal((1, buffers[0].shape[1], n, dim), dtype=mx.float32).astype(dtype) * 0.1 for dim in dims
            )
            layer.begin(n, False)
            layer.update_and_fetch(keys, values)  # pyright: ignore[reportAttributeAccessIssue]
            layer.commit([n])
        else:
            layer.lengths = [length + n for length in layer.lengths]
    state.lengths = [length + n for length in state.lengths]
    prefill.sequence.tokens += filler
    for part in prefill.sequence.chain.parts:
        part.observe(prefill.sequence.context(part), None, prefill.sequence.context(part).length, filler)
    mx.eval(state.arrays())

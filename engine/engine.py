"""The engine: one loaded model, its drafters, and a thread that decodes. What front ends and Python programs use.

    engine = load("smollm2-135m")
    for event in engine.submit(Request(engine.format.render([{"role": "user", "content": "Hi"}]))):
        ...

Knows no screen and no socket.
"""

from __future__ import annotations

import itertools
import queue
import uuid
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.backend.memory_pressure import PressureGuard
from engine.calibration.calibrator import Calibrator
from engine.calibration.summary import CalibrationView
from engine.chat.images import Eye, Picture, Prompt, check_pictures
from engine.chat.template import ChatFormat
from engine.chat.tokenizer import Tokenizer
from engine.decoding.admission import Admission
from engine.decoding.chunk_budget import STALL_MS, Pace
from engine.decoding.draft_length.policy import CapPolicy, EngineCap, policy_for
from engine.decoding.drafter_watch import DrafterWatch
from engine.decoding.loop import Loop
from engine.decoding.plan import Plan
from engine.decoding.scheduler import Scheduler
from engine.decoding.sequence import Listener, Sequence
from engine.decoding.stopping import Finish
from engine.drafters.base import Drafter
from engine.drafters.block import CONTEXT_ROWS
from engine.drafters.chain import Chain
from engine.drafters.drafter_set import DrafterSet
from engine.errors import ContextOverflow, UsageError
from engine.prefix_cache.cache import PrefixCache, Stats
from engine.sampling.sampler import RowSampler
from engine.targets.base import Target, TargetSpec
from engine.targets.load import Loaded
from engine.types import DrafterInfo, Event, Failed, Finished, Request, Tokens

T = TypeVar("T")
Progress = Callable[[str, float], None]
"""(what is happening, fraction done or -1)."""


@dataclass(slots=True)
class Options:
    """How an engine decodes; everything has a default."""

    drafter: str = "auto"
    cap: EngineCap = None
    fallback: int | None = None
    """Draft length of a learned drafter on a machine that was not measured; None is the policy's own."""
    max_batch: int = 1
    cache: PrefixCache | None = None
    chunk: int | None = None
    stall_ms: float = STALL_MS
    """Longest wait of a running request for a part of another one's prompt; 0 sets no limit."""
    state_bytes: int = 0
    """What the states and contexts of all requests under way may take together; 0 sets no limit."""
    drafter_window: int = CONTEXT_ROWS
    """Positions that full-attention layers of a learned drafter look back; 0 for all."""
    lookup: bool = True
    """Whether `auto` may use lookup (a card turns it off for mixtures of experts)."""


class Ticket:
    """One submitted request: iterate over its events, or give a listener to `submit`."""

    def __init__(self, engine: Engine, sequence: Sequence, events: queue.SimpleQueue[Event] | None) -> None:
        self._engine = engine
        self._sequence = sequence
        self._events = events

    @property
    def id(self) -> str:
        return self._sequence.request.id

    def __iter__(self) -> Iterator[Event]:
        """Events until the last one (Finished or Failed). Not available when a listener was given."""
        if self._events is None:
            raise RuntimeError("this request's events go to its listener")
        while True:
            event = self._events.get()
            yield event
            if isinstance(event, Finished | Failed):
                return

    def cancel(self) -> None:
        """Stop at the next round or prefill chunk. What was delivered stays; a Finished("cancel") follows."""
        self._sequence.cancel()
        self._engine.scheduler.wake()

    def use(self, drafter: str | None = None, cap: int | None = None) -> None:
        """Switch drafter and draft length from the next round on, in mid-answer."""
        self._sequence.use(drafter, cap)

    def text(self) -> str:
        """Wait for the end; the whole text. Raises what the request failed with."""
        parts: list[str] = []
        for event in self:
            if isinstance(event, Tokens):
                parts.append(event.text)
            elif isinstance(event, Failed):
                raise event.error
        return "".join(parts)


class Engine:
    """One model ready to decode. Thread-safe; close it when done (or use it as a context manager)."""

    def __init__(self, scheduler: Scheduler, loaded: Loaded, options: Options | None = None) -> None:
        self.scheduler = scheduler
        self.options = options or Options()
        self.target: Target = loaded.target
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.config = loaded.config
        self.generation = loaded.generation
        self.format = ChatFormat(loaded.tokenizer.backend)
        self.loop = Loop(self.target)
        size_up = scheduler.run_exclusive(lambda: Admission(self.target, self.options.state_bytes))
        self.admission = size_up.result()
        self._guard: PressureGuard | None = None
        self.calibrator = Calibrator(self)
        """Measured curves and learned acceptance; empty until it is told to load or to measure."""
        self._numbers = itertools.count(1)
        self.offered = DrafterSet()
        """What requests can draft with; a learned drafter is added to it once it is loaded."""
        self._watch = DrafterWatch(self.offered.remark)
        self.drafter = "lookup" if self.options.drafter == "auto" and self.options.lookup else "none"
        self._install()

    @property
    def spec(self) -> TargetSpec:
        return self.target.spec

    @property
    def cache_stats(self) -> Stats | None:
        """What the prefix cache holds and has served; None when it is off."""
        return self.options.cache.stats() if self.options.cache is not None else None

    @property
    def state_bytes(self) -> int:
        """What the requests under way may come to take; see `Options.state_bytes`."""
        return self.scheduler.held

    # Drafters ---------------------------------------------------------------------------------------------------------

    def add_drafter(self, drafter: Drafter[Any]) -> None:
        """Offer a learned drafter, alone and behind lookup."""
        self.offered.add(drafter)

    @property
    def chains(self) -> Mapping[str, Chain]:
        return self.offered.chains

    def chain(self, name: str) -> Chain:
        """A chain that is offered.

        Raises:
            UnknownDrafter: with the reason, or with the names there are.
        """
        return self.offered.chain(name)

    @property
    def drafters(self) -> list[DrafterInfo]:
        """What can be switched to, in key order, then what cannot and why."""
        return self.offered.infos()

    @property
    def drafter(self) -> str:
        """The chain of requests that name none."""
        return self.offered.current

    @drafter.setter
    def drafter(self, name: str) -> None:
        self.offered.current = name

    def policy(self, cap: int | None, chain: Chain, conversation: str = "") -> CapPolicy:
        """Draft lengths for one request."""
        name = self.calibrator.name_of(chain.name)
        memory = self.calibrator.book.open(name, conversation)
        return policy_for(
            cap, self.options.cap, self.calibrator.costs(name), chain, memory, fallback=self.options.fallback
        )

    @property
    def calibration(self) -> CalibrationView:
        """What this machine was measured to do with the current drafter."""
        return self.calibrator.view(self.drafter)

    # Requests ---------------------------------------------------------------------------------------------------------

    def submit(self, request: Request, listener: Listener | None = None) -> Ticket:
        """Queue a request. Events go to `listener`, on the model thread, or to the ticket's iterator.

        Raises:
            ContextOverflow: the prompt does not fit the window.
            RequestTooLarge: its state alone would exceed the bytes that all requests share.
            UsageError: an empty prompt, ids outside the vocabulary, or a budget below one.
            EngineClosed: after close.
        """
        request = self._checked(request)
        chain = self.chain(request.drafter or self.drafter)
        length = len(request.prompt)
        self.admission.check(length, self.admission.need(length, request.max_tokens, chain))
        events: queue.SimpleQueue[Event] | None = None if listener else queue.SimpleQueue()
        sequence = Sequence(
            request,
            sampler=RowSampler(request.sampling, request.prompt, self.spec.vocab_size, request.processors),
            finish=Finish(
                self.tokenizer,
                stop_ids=self.spec.stop_ids if request.stop_ids is None else request.stop_ids,
                stop=request.stop,
                max_tokens=request.max_tokens,
                room=self.spec.context - len(request.prompt),
                scope=request.stop_scope() if request.stop_scope and request.stop else None,
            ),
            chain=chain,
            chains=self.chains,
            policies=lambda cap, chain: self.policy(cap, chain, request.conversation),
            watch=self._watch,
            listener=self._listening(listener or events.put),  # pyright: ignore[reportOptionalMemberAccess]
        )
        sequence.keeps_reply = self.format.keeps_reply(request.prompt)
        self.scheduler.submit(sequence)
        return Ticket(self, sequence, events)

    def _listening(self, listener: Listener) -> Listener:
        """Answers are remembered as they were generated before anyone hears that they are complete."""

        def hear(event: Event) -> None:
            if isinstance(event, Finished):
                self.format.remember(event.text, event.tokens)
            listener(event)

        return hear

    def _checked(self, request: Request) -> Request:
        if not len(request.prompt):
            raise UsageError("The prompt is empty; there is nothing to continue.")
        if request.max_tokens < 1:
            raise UsageError(f"max_tokens is {request.max_tokens}; at least one token must be allowed.")
        if len(request.prompt) >= self.spec.context:
            raise ContextOverflow(
                f"The prompt has {len(request.prompt)} tokens and the context window is {self.spec.context}; "
                "shorten it or start a new chat.",
                len(request.prompt),
                self.spec.context,
            )
        if request.embeddings is None and not all(0 <= t < self.spec.vocab_size for t in request.prompt):
            raise UsageError(f"The prompt holds token ids outside 0..{self.spec.vocab_size - 1}.")
        return request if request.id else replace(request, id=f"{next(self._numbers)}-{uuid.uuid4().hex[:8]}")

    def generate(self, prompt: str, **kwargs: Any) -> str:
        """One chat turn as text: the shortest way in. kwargs are Request's."""
        return self.submit(Request(self.format.render([{"role": "user", "content": prompt}]), **kwargs)).text()

    def see(self, ids: Seq[int], pictures: Seq[Picture]) -> Prompt:
        """A rendered prompt with its pictures in their places; `ids` has one placeholder for each.

        Raises:
            ImageUnsupported: when the model reads text only, or places and pictures do not match.
        """
        eye: Eye | None = getattr(self.target, "eye", None)
        check_pictures(self.spec.name, eye, pictures)
        if eye is None or not pictures:
            return Prompt(list(ids), None, ())
        return self.run_exclusive(lambda: eye.prompt(ids, pictures))

    def picture_tokens(self, picture: Picture) -> int:
        """What a picture would take of the context. Does not wait for the model thread.

        Raises:
            ImageUnsupported: when the model reads text only.
        """
        eye: Eye | None = getattr(self.target, "eye", None)
        check_pictures(self.spec.name, eye, [picture])
        return eye.tokens(picture) if eye is not None else 0

    def run_exclusive(self, work: Callable[[], T]) -> T:
        """Run `work` on the model thread between two rounds and wait for it."""
        return self.scheduler.run_exclusive(work).result()

    # Life -------------------------------------------------------------------------------------------------------------

    def _install(self) -> None:
        options = self.options
        pace = Pace(options.stall_ms)
        plan = Plan(self.target, self.loop, options.cache, options.max_batch, pace=pace, admission=self.admission)
        if options.chunk:
            plan.chunk = options.chunk
        self.scheduler.run_exclusive(lambda: self.scheduler.use(plan)).result()

    def watch_memory(self) -> None:
        """From now on, give back what the prefix cache can spare when the machine runs short of memory."""
        cache = self.options.cache
        if cache is not None and self._guard is None:
            self._guard = PressureGuard(lambda level: self.scheduler.run_exclusive(lambda: cache.shed(level)))
            self._guard.start()

    def close(self) -> None:
        """Cancel what is under way, end the thread and let go of the weights."""
        if self._guard is not None:
            self._guard.stop()
        self.scheduler.close()
        if self.options.cache is not None:
            self.options.cache.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

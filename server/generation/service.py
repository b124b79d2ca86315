"""Between the routes and the engine: checks, defaults, templates, constraints, the queue's limit, and cancellation.

Everything that a dialect does not decide is decided here, once for all dialects.
"""

from __future__ import annotations

import asyncio
import copy
import fnmatch
import logging
import threading
import weakref
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.chat.history import without_pictures
from engine.chat.images import Picture, read_picture
from engine.chat.prompt import build_request, continue_ids
from engine.chat.reasoning import ThinkSplitter
from engine.engine import Engine
from engine.errors import DsparkError, ImageUnsupported
from engine.types import Request, StopScope
from server.errors import ApiError, bad, from_engine, too_long
from server.generation import prompt as forcing
from server.generation.channel import Channel
from server.generation.choice import Choice, Plain, Splitter
from server.generation.content import beginning
from server.generation.engine_holder import Holder
from server.generation.infill import infill
from server.generation.logprobs import TokenBytes
from server.metrics import Metrics
from server.settings import Settings
from server.tool_calls.base import ShownText
from server.types import Broken, Chat, Delta, Message, fresh_id

log = logging.getLogger("dspark.server")

SHORT_CHARACTERS = 2000
"""Up to here a prompt is rendered and encoded in about a millisecond."""


@dataclass(slots=True)
class Prepared:
    """A request that passed every check and needs only a place in the queue."""

    engine: Engine
    request: Request
    splitter: Any
    prompt: list[int]


class Generation:
    """The answer to one request under way."""

    def __init__(self, channel: Channel, choices: list[Choice]) -> None:
        self._channel = channel
        self._choices = choices
        self._cancelled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._channel.cancel()

    @property
    def live(self) -> bool:
        return not all(c.over for c in self._choices)

    async def deltas(self, tick: float) -> AsyncGenerator[tuple[int, Delta] | None, None]:
        """(choice, delta) in order; None whenever `tick` seconds pass without an event."""
        try:
            while self.live:
                items = await self._channel.get(tick)
                if items is None:
                    yield 0, Broken(ApiError("The server is shutting down; send the request again.", "unavailable"))
                    return
                if not items:
                    yield None
                for choice, event in items:
                    for delta in self._choices[choice].take(event):
                        yield choice, delta
                    if self._choices[choice].satisfied:
                        self._channel.cancel(choice)
        finally:
            if self.live:
                self.cancel()


def _short(chat: Chat) -> bool:
    """Whether a chat takes no longer to prepare than a frame to send: little text, and nothing to compile."""
    if chat.tools or chat.format is not None or chat.images or not isinstance(chat.prompt, str | None):
        return False
    texts = [chat.prompt, *(m.get("content") for m in chat.messages)]
    return all(isinstance(t, str | None) for t in texts) and sum(len(t or "") for t in texts) <= SHORT_CHARACTERS


def _shown(engine: Engine, chat: Chat, splitter: ThinkSplitter) -> StopScope:
    """Where stop texts count in an answer that may hold calls."""
    parser = forcing.parser(engine, chat)
    assert parser is not None
    return ShownText(copy.deepcopy(splitter), parser)


def _pictures(engine: Engine, chat: Chat) -> tuple[list[Message], list[Picture]]:
    """Messages and the pictures in them that the model is shown. What has happened is no reason to refuse: a picture
    that cannot be read there, or that the model cannot see, is a note.

    Raises:
        ImageUnsupported, PictureUnreadable: a picture of the message that is being sent.
    """
    found: list[Picture | DsparkError] = []
    for i, image in enumerate(chat.images, 1):
        try:
            if not engine.spec.vision:
                raise ImageUnsupported(
                    f"The model {engine.spec.name} reads text only and the request has images; leave the images out "
                    "or load a model that sees."
                )
            found.append(read_picture(image.data, f"Image {i}"))
        except DsparkError as error:
            found.append(error)
    usable = [isinstance(f, Picture) for f in found]
    messages, kept = without_pictures(chat.messages, [""] * len(found), usable.__getitem__)
    pictures: list[Picture] = []
    for number in kept:
        picture = found[number]
        if isinstance(picture, DsparkError):
            raise picture
        pictures.append(picture)
    return messages, pictures


class Service:
    """One per application."""

    def __init__(self, holder: Holder, settings: Settings, metrics: Metrics) -> None:
        self.holder = holder
        self.settings = settings
        self.metrics = metrics
        self._closing = False
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._pending = 0
        # One at a time: fast tokenizers switch the meaning of special tokens by a flag that all their users share.
        self._kitchen = ThreadPoolExecutor(1, "dspark-prepare")
        self._cooking = threading.Lock()
        self._bytes: tuple[Engine, TokenBytes] | None = None

    def close(self) -> None:
        """Take no more requests and end the open ones with an error; may be called from a signal handler."""
        self._closing = True
        for channel in list(self._channels):
            channel.shut()

    # Models -----------------------------------------------------------------------------------------------------------

    def engine(self, model: str) -> Engine:
        """The loaded engine, if `model` means it."""
        engine = self.holder.engine
        names = {engine.spec.name, self.holder.name, "default", *self.settings.aliases, ""}
        if not any(model == n or fnmatch.fnmatchcase(model, n) for n in names if n or not model):
            raise ApiError(
                f"The model '{model}' is not loaded; this server serves '{self.holder.name}'. "
                "Ask for that name, or start the server with --alias.",
                "not_found",
                param="model",
                code="model_not_found",
            )
        return engine

    # Requests ---------------------------------------------------------------------------------------------------------

    async def tokens(self, chat: Chat) -> list[int]:
        """The prompt that a chat becomes."""
        return (await self._prepare(chat, counting=True)).prompt

    async def count(self, chat: Chat) -> int:
        return len(await self.tokens(chat))

    async def start(self, chat: Chat) -> Generation:
        """Check, queue, and return the running generation.

        Raises:
            ApiError: with the status to answer.
        """
        settings = self.settings
        if chat.choices > settings.max_choices:
            param = "n" if len(chat.prompts) < 2 else "prompt"
            raise bad(f"{param}: at most {settings.max_choices} answers a request, got {chat.choices}.", param)
        if self._closing:
            raise ApiError("The server is shutting down; send the request again.", "unavailable")
        if self._load() + chat.choices > settings.max_queue:
            raise ApiError(
                "The queue is full; try again shortly.", "rate_limit", code="queue_full", headers={"retry-after": "1"}
            )
        self._pending += chat.choices
        try:
            several = [replace(chat, prompt=p, prompts=()) for p in chat.prompts] if len(chat.prompts) > 1 else [chat]
            return self._submit(chat, [await self._prepare(one) for one in several])
        finally:
            self._pending -= chat.choices

    def _load(self) -> int:
        load = self.metrics.totals()
        return load["running"] + load["waiting"] + self._pending

    async def _prepare(self, chat: Chat, *, counting: bool = False) -> Prepared:
        """Templates and tokenisers take long for long prompts, which are prepared beside the event loop. For a short
        one the way to another thread and back is the longer part on a busy machine."""
        if _short(chat) and self._cooking.acquire(blocking=False):
            try:
                return self._prepared(chat, counting)
            finally:
                self._cooking.release()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._kitchen, self._cooked, chat, counting)

    def _cooked(self, chat: Chat, counting: bool) -> Prepared:
        with self._cooking:
            return self._prepared(chat, counting)

    def _prepared(self, chat: Chat, counting: bool) -> Prepared:
        engine = self.engine(chat.model)
        try:
            for token in chat.sampling.get("logit_bias") or ():
                if not 0 <= token < engine.spec.vocab_size:
                    last = engine.spec.vocab_size - 1
                    raise bad(f"logit_bias: token ids go from 0 to {last}, got {token}.", "logit_bias")
            request, splitter = self._built(engine, chat)
            prompt, limit = list(request.prompt), engine.spec.context
            if not counting and len(prompt) >= limit:
                raise too_long(len(prompt), limit)
            if not counting:
                chat.law = request.sampling
                most = min(request.max_tokens, self.settings.max_tokens_cap, limit - len(prompt))
                request = replace(request, max_tokens=most, processors=forcing.processors(engine, chat, prompt))
            return Prepared(engine, request, splitter, prompt)
        except ApiError:
            raise
        except Exception as error:  # the edge of a request: a template or a schema may raise anything
            mapped = from_engine(error)
            if mapped.status == 500:
                log.exception("a request could not be prepared")
            raise mapped from error

    def _built(self, engine: Engine, chat: Chat) -> tuple[Request, Splitter]:
        """The request as what it says itself, what the operator decided and what the checkpoint recommends
        make it."""
        said = {"max_tokens": chat.max_tokens, "thinking": chat.thinking, "effort": chat.effort, **chat.sampling}
        config = self.settings.config.over({k: v for k, v in said.items() if v is not None}, "request")
        more: dict[str, Any] = {"stop": chat.stop, "logprobs": chat.logprobs, "drafter": chat.drafter, "cap": chat.cap}
        more["conversation"] = chat.conversation or beginning(chat.messages)
        if chat.prompt is not None:
            return continue_ids(engine, self._ids(engine, chat.prompt, chat.suffix), config, **more), Plain()
        chat.messages, pictures = _pictures(engine, chat)
        messages, template = forcing.conversation(engine, chat)
        built = build_request(engine, messages, config, pictures, template=template, **more)
        if not forcing.calls(chat):
            return built.request, built.splitter
        scope = partial(_shown, engine, chat, built.splitter)
        return replace(built.request, stop_scope=scope), built.splitter

    @staticmethod
    def _ids(engine: Engine, prompt: str | list[int], suffix: str) -> list[int]:
        if suffix and isinstance(prompt, str):
            return infill(engine.tokenizer, prompt, suffix)
        ids = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not ids:
            raise bad("prompt: must not be empty.", "prompt")
        if not all(0 <= t < engine.spec.vocab_size for t in ids):
            raise bad(f"prompt: token ids go from 0 to {engine.spec.vocab_size - 1}.", "prompt")
        return ids

    def _submit(self, chat: Chat, several: list[Prepared]) -> Generation:
        loop = asyncio.get_running_loop()
        channel = Channel(loop, logprobs=chat.logprobs is not None, choices=chat.choices, news=chat.news)
        choices: list[Choice] = []
        for i in range(chat.choices):
            prepared, sibling = several[i // chat.n], i % chat.n
            engine, request = prepared.engine, prepared.request
            track = self.metrics.track()
            choices.append(self._choice(engine, chat, channel, i, prepared))
            one = self._sibling(engine, chat, request, sibling) if sibling else request
            try:
                channel.attach(engine.submit(replace(one, id=fresh_id("")), channel.listener(i, track)))
            except Exception as error:  # refused by the engine: nothing of this request may stay behind
                track.abandon()
                channel.cancel()
                raise from_engine(error) from error
        self._channels.add(channel)
        return Generation(channel, choices)

    def _sibling(self, engine: Engine, chat: Chat, request: Request, index: int) -> Request:
        """Further choices differ by their seed and have processors of their own."""
        sampling = request.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + index)
        return replace(request, sampling=sampling, processors=forcing.processors(engine, chat, list(request.prompt)))

    def _choice(self, engine: Engine, chat: Chat, channel: Channel, index: int, prepared: Prepared) -> Choice:
        return Choice(
            copy.deepcopy(prepared.splitter),
            channel.ledgers[index],
            parser=forcing.parser(engine, chat),
            hide_reasoning=chat.thinking is False,
            entry=self._token_bytes(engine).entry if chat.logprobs is not None else None,
            one_call=not chat.choice.parallel,
        )

    def _token_bytes(self, engine: Engine) -> TokenBytes:
        if self._bytes is None or self._bytes[0] is not engine:
            self._bytes = (engine, TokenBytes(engine.tokenizer))
        return self._bytes[1]

"""A scripted engine behind the real HTTP layer: real tokenizer, template, stop logic and constraints, no model.

What it says is read from a script; how fast, in what rounds and with which failures as well. Threads stand in for the
scheduler, so that clients can be slow, leave, and pile up.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Fast
from transformers import PreTrainedTokenizerFast

from engine.chat.template import ChatFormat
from engine.chat.tokenizer import Tokenizer
from engine.decoding.stopping import Finish
from engine.errors import ContextOverflow, EngineClosed
from engine.targets.base import TargetSpec
from engine.types import (
    Event,
    Failed,
    Finished,
    Logprob,
    Prefilled,
    Prefilling,
    Request,
    Round,
    Source,
    Tokens,
    Usage,
)

CHATML = """
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}Tools:
{% for t in tools %}{{ t | tojson }}
{% endfor %}Call with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('System message must come first.') }}{% endif %}
{%- if m.role == 'user' %}<|im_start|>user
{{ m.content }}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>tool
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""
"""Strict about system messages, knows tools and a thinking switch."""

SPECIALS = ("<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def _alphabet() -> list[str]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in plain}
    for shift, byte in enumerate(b for b in range(256) if b not in table):
        table[byte] = chr(256 + shift)
    return [table[b] for b in range(256)]


def toy_tokenizer(template: str = CHATML) -> Tokenizer:
    """One token a byte, and the marks of a chat model."""
    fast = Fast(models.BPE(vocab={c: i for i, c in enumerate(_alphabet())}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(list(SPECIALS))
    fast.add_tokens([AddedToken(m, special=False, normalized=False) for m in MARKS])
    backend = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|im_end|>")
    backend.chat_template = template
    return Tokenizer(backend)


@dataclass(frozen=True, slots=True)
class Script:
    """What the engine does with one request."""

    text: str = "Hello there, this is the scripted answer."
    prefill: float = 0.0
    """Seconds of silent reading."""
    delay: float = 0.0
    """Seconds per round."""
    block: int = 4
    """Drafted tokens a round; the last draft of every other round is rejected."""
    fail_after: int | None = None
    """Raise after so many tokens."""
    end: bool = True
    """Say the end-of-turn token after the text; otherwise the text repeats for ever."""


Playwright = Callable[[Request, str], Script]


class ScriptedEngine:
    """The parts of `engine.engine.Engine` that the server uses."""

    def __init__(
        self,
        play: Playwright | Script | None = None,
        *,
        template: str = CHATML,
        context: int = 32768,
        max_batch: int = 8,
        name: str = "toy-model",
        vision: bool = False,
    ) -> None:
        self.play: Playwright = play if callable(play) else (lambda request, prompt, script=play or Script(): script)
        self.tokenizer = toy_tokenizer(template)
        self.format = ChatFormat(self.tokenizer.backend)
        self.generation: dict[str, Any] = {}
        self.options = SimpleNamespace(cache=None)
        self.admission = SimpleNamespace(budget=0)
        self.state_bytes = 0
        self.drafter = "lookup"
        self.drafters = [SimpleNamespace(name="none", available=True), SimpleNamespace(name="lookup", available=True)]
        eos = self.tokenizer.token("<|im_end|>")
        assert eos is not None
        self.eos = eos
        self.spec = TargetSpec(
            model_type="toy",
            name=name,
            path="",
            hidden_size=8,
            num_layers=1,
            vocab_size=self.tokenizer.vocab_size,
            stop_ids=frozenset({eos}),
            context=context,
            weight_bytes=0,
            kv_bytes_per_token=1,
            vision=vision,
        )
        self.requests: list[Request] = []
        self.prompts: list[str] = []
        self.history: list[list[int]] = []
        self.active = 0
        self.chunks_read = 0
        self.closed = False
        self._slots = threading.Semaphore(max_batch)
        self._lock = threading.Lock()

    def submit(self, request: Request, listener: Callable[[Event], None]) -> _Ticket:
        if self.closed:
            raise EngineClosed("The engine is closed.")
        if len(request.prompt) >= self.spec.context:
            raise ContextOverflow("too long", len(request.prompt), self.spec.context)
        ticket = _Ticket()
        self.requests.append(request)
        self.prompts.append(self.tokenizer.decode(request.prompt))
        worker = threading.Thread(target=self._run, args=(request, listener, ticket), daemon=True)
        worker.start()
        return ticket

    def close(self) -> None:
        self.closed = True

    def run_exclusive(self, work: Callable[[], Any]) -> Any:
        return work()

    def __hash__(self) -> int:
        return id(self)

    # A request's life -----------------------------------------------------------------------------------------------

    def _run(self, request: Request, listener: Callable[[Event], None], ticket: _Ticket) -> None:
        began = time.perf_counter()
        while not self._slots.acquire(timeout=0.02):
            if ticket.cancelled:
                listener(Finished(request.id, "cancel", Usage(prompt=len(request.prompt))))
                return
        with self._lock:
            self.active += 1
        try:
            self._play(request, listener, ticket, began)
        except Exception as error:
            listener(Failed(request.id, error, Usage(prompt=len(request.prompt))))
        finally:
            with self._lock:
                self.active -= 1
            self._slots.release()

    def _play(self, request: Request, listener: Callable[[Event], None], ticket: _Ticket, began: float) -> None:
        script = self.play(request, self.tokenizer.decode(request.prompt))
        cached = self._cached(list(request.prompt))
        total = len(request.prompt)
        listener(Prefilling(request.id, cached, total))
        usage = Usage(prompt=total, cached=cached)
        read = time.perf_counter()
        while time.perf_counter() - read < script.prefill:
            time.sleep(0.02)
            self.chunks_read += 1
            if ticket.cancelled:
                listener(Finished(request.id, "cancel", usage))
                return
        spent = (time.perf_counter() - read) * 1e3
        listener(Prefilled(request.id, total, cached, spent, queued_ms=(read - began) * 1e3))
        performance = _Performance(self, request, script, replace(usage, prefill_ms=spent))
        reason = performance.run(listener, ticket)
        self._remember([*request.prompt, *performance.ids])
        listener(
            Finished(
                request.id,
                reason,
                performance.usage,
                tuple(performance.ids),
                performance.finish.text,
                performance.finish.stop,
            )
        )

    def _cached(self, ids: list[int]) -> int:
        """Like a prefix cache without a limit."""
        best = 0
        with self._lock:
            for old in self.history:
                n = 0
                while n < min(len(old), len(ids) - 1) and old[n] == ids[n]:
                    n += 1
                best = max(best, n)
        return best

    def _remember(self, ids: list[int]) -> None:
        with self._lock:
            self.history.append(ids)


class _Ticket:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Performance:
    """Plays one script in rounds."""

    def __init__(self, engine: ScriptedEngine, request: Request, script: Script, usage: Usage) -> None:
        self.engine, self.request, self.script, self.usage = engine, request, script, usage
        self.wanted = engine.tokenizer.encode(script.text, special=True)
        self.ids: list[int] = []
        self.random = random.Random(request.sampling.seed if request.sampling.seed is not None else 0)
        self.finish = Finish(
            engine.tokenizer,
            stop_ids=engine.spec.stop_ids,
            stop=request.stop,
            max_tokens=request.max_tokens,
            room=engine.spec.context - len(request.prompt),
            scope=request.stop_scope() if request.stop_scope and request.stop else None,
        )

    def run(self, listener: Callable[[Event], None], ticket: _Ticket) -> Any:
        index = 0
        start = time.perf_counter()
        while self.finish.reason is None:
            if ticket.cancelled:
                self.finish.abandon()
                self._emit(listener)
                return "cancel"
            if self.script.delay:
                time.sleep(self.script.delay)
            if self.script.fail_after is not None and len(self.ids) >= self.script.fail_after:
                raise RuntimeError("secret detail of the model")
            tokens, drafted, accepted = self._round(index)
            self._deliver(listener, index, tokens, drafted, accepted)
            index += 1
            self.usage = replace(self.usage, decode_ms=(time.perf_counter() - start) * 1e3 + 0.01)
        return self.finish.reason

    def _next(self, offset: int) -> int:
        at = len(self.ids) + offset
        if at < len(self.wanted):
            return self.wanted[at]
        return self.engine.eos if self.script.end or not self.wanted else self.wanted[at % len(self.wanted)]

    def _round(self, index: int) -> tuple[list[int], list[int], int]:
        """(tokens, drafted, accepted) before any cut."""
        limit = min(self.script.block, self.finish.remaining - 1) if index and self.request.cap != 0 else 0
        drafts = [self._next(i) for i in range(max(0, limit))]
        if drafts and index % 2:
            drafts[-1] = (drafts[-1] + 1) % 256
        processors = self.request.processors
        if not processors:
            accepted = 0
            while accepted < len(drafts) and drafts[accepted] == self._next(accepted):
                accepted += 1
            return [*drafts[:accepted], self._next(accepted)], drafts, accepted
        for processor in processors:
            drafts = drafts[: processor.trim(drafts)]
        picks = self._constrained(drafts)
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == picks[accepted]:
            accepted += 1
        return [*drafts[:accepted], picks[accepted]], drafts, accepted

    def _constrained(self, drafts: list[int]) -> list[int]:
        rows = len(drafts) + 1
        noise = np.array(
            [[self.random.random() for _ in range(self.engine.spec.vocab_size)] for _ in range(rows)], dtype=np.float32
        )
        for row in range(rows):
            noise[row, self._next(row)] += 5.0
        logits = mx.array(noise)
        for processor in self.request.processors:
            logits = processor.rows(logits, mx.array(drafts, dtype=mx.int32))
        return [int(t) for t in np.argmax(np.array(logits), axis=-1)]

    def _deliver(
        self, listener: Callable[[Event], None], index: int, tokens: list[int], drafted: list[int], accepted: int
    ) -> None:
        kept: list[int] = []
        base = len(self.request.prompt) + len(self.ids)
        for i, token in enumerate(tokens):
            source = Source.LOOKUP if i < accepted else Source.TARGET
            kept.append(token)
            if self.finish.push(token, source, base + i, index):
                break
        for processor in self.request.processors:
            processor.commit(kept)
        self.ids += kept
        accepted = min(accepted, len(kept))
        self.usage = replace(
            self.usage,
            completion=len(self.ids),
            drafted=self.usage.drafted + len(drafted),
            accepted=self.usage.accepted + accepted,
            rounds=index + 1,
        )
        listener(
            Round(
                self.request.id,
                index,
                base,
                tuple(kept),
                tuple(drafted),
                accepted,
                Source.LOOKUP,
                "lookup",
                logprobs=self._logprobs(kept),
            )
        )
        self._emit(listener)

    def _logprobs(self, tokens: Sequence[int]) -> tuple[Logprob, ...]:
        count = self.request.logprobs
        if count is None:
            return ()
        return tuple(Logprob(t, -0.1, tuple(((t + i) % 256, -0.1 - i) for i in range(count))) for t in tokens)

    def _emit(self, listener: Callable[[Event], None]) -> None:
        pieces = self.finish.take()
        if pieces:
            listener(Tokens(self.request.id, pieces))


def by_prompt(answers: dict[str, Script | str], default: Script | str = "ok") -> Playwright:
    """Choose the script by what the last user message contains."""

    def play(request: Request, prompt: str) -> Script:
        last = prompt.rsplit("<|im_start|>", 2)[-2] if "<|im_start|>" in prompt else prompt
        found = next((s for key, s in answers.items() if key in last), default)
        return found if isinstance(found, Script) else Script(found)

    return play


def call_text(name: str, arguments: dict[str, Any]) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"

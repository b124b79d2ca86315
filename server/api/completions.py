"""OpenAI Completions: raw text or token ids in, text out."""

from __future__ import annotations

from typing import Any

from engine.types import Usage
from server.api.base import add_usage, decode, openai_error, openai_usage, sum_usage
from server.api.chat_completions.request import Sampled
from server.api.dialect import Context, Dialect, Identity
from server.api.validation import held, positive, sampling_of, stops, top_count
from server.errors import ApiError, bad
from server.http import sse
from server.types import Answer, Chat, Delta, Done, Text, TokenLogprob


class _Request(Sampled, kw_only=True):
    prompt: str | list[int | str | list[int]]
    logprobs: int | bool | None = None
    echo: bool | None = False
    suffix: str | None = None


def parse(body: bytes, context: Context) -> Chat:
    request = decode(body, _Request, "completions")
    prompts = _prompts(request.prompt)
    texts = all(isinstance(p, str) for p in prompts)
    if request.suffix and not texts:
        raise bad("suffix: goes with a prompt that is text.", "suffix")
    top = top_count(request.logprobs, "logprobs")
    return Chat(
        model=request.model,
        prompt=prompts[0],
        prompts=prompts,
        suffix=request.suffix or "",
        format=request.structured(),
        sampling=sampling_of(request, "completions"),
        max_tokens=held("max_tokens", request.max_tokens, "max_tokens"),
        stop=stops(request.stop, "stop"),
        n=positive(request.n, "n") or 1,
        logprobs=None if top is None or top is False else int(top),
        drafter=request.drafter,
        cap=held("cap", request.draft_cap, "draft_cap"),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        provenance=bool(request.x_dspark),
        conversation=request.prompt_cache_key or "",
        echo=tuple(p if request.echo and isinstance(p, str) else "" for p in prompts),
    )


def _prompts(given: Any) -> tuple[str | list[int], ...]:
    """One prompt or several: a text or ids, or a list of either."""
    found = given if isinstance(given, list) and given and isinstance(given[0], str | list) else [given]
    for i, prompt in enumerate(found):
        where = "prompt" if found[0] is given else f"prompt[{i}]"
        if not prompt:
            raise bad(f"{where}: must not be empty.", where)
        if not (isinstance(prompt, str) or (isinstance(prompt, list) and all(isinstance(t, int) for t in prompt))):
            raise bad(f"{where}: give a text or a list of token ids.", where)
    return tuple(found)


def _echo(chat: Chat, choice: int) -> str:
    """What stands before the text of a choice: its prompt, when that was asked for."""
    return chat.echo[choice // chat.n]


def _reason(done: Done | None) -> str:
    return "length" if done is not None and done.reason == "length" else "stop"


def _logprobs(entries: list[TokenLogprob] | tuple[TokenLogprob, ...], start: int) -> dict[str, Any]:
    offsets, at = list[int](), start
    for entry in entries:
        offsets.append(at)
        at += len(entry.text)
    return {
        "tokens": [e.text for e in entries],
        "token_logprobs": [e.logprob for e in entries],
        "top_logprobs": [{t: p for t, _, p in e.top} for e in entries],
        "text_offset": offsets,
    }


def answer(chat: Chat, answers: list[Answer], identity: Identity) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": identity.id,
        "object": "text_completion",
        "created": identity.created,
        "model": identity.model,
        "choices": [
            {
                "index": i,
                "text": _echo(chat, i) + a.text,
                "logprobs": None if chat.logprobs is None else _logprobs(a.logprobs, len(_echo(chat, i))),
                "finish_reason": _reason(a.done),
            }
            for i, a in enumerate(answers)
        ],
        "usage": openai_usage(add_usage(answers, chat.n)),
    }
    if chat.provenance:
        body["x_dspark"] = [a.done.provenance.as_dict() for a in answers if a.done and a.done.provenance]
    return body


class CompletionStream:
    def __init__(self, chat: Chat, identity: Identity) -> None:
        self._chat = chat
        self._usages = [Usage()] * chat.choices
        self._offsets = [len(_echo(chat, i)) for i in range(chat.choices)]
        self._base = {
            "id": identity.id,
            "object": "text_completion",
            "created": identity.created,
            "model": identity.model,
        }

    def open(self) -> list[bytes]:
        return [self._chunk(i, echo) for i in range(self._chat.choices) if (echo := _echo(self._chat, i))]

    def frames(self, choice: int, delta: Delta) -> list[bytes]:
        match delta:
            case Text(text, logprobs):
                block = _logprobs(logprobs, self._offsets[choice]) if self._chat.logprobs is not None else None
                self._offsets[choice] += len(text)
                return [self._chunk(choice, text, logprobs=block)]
            case Done():
                self._usages[choice] = delta.usage
                extra = {"x_dspark": delta.provenance.as_dict()} if self._chat.provenance and delta.provenance else {}
                return [self._chunk(choice, "", _reason(delta), **extra)]
            case _:
                return []

    def heartbeat(self) -> list[bytes]:
        return [self._chunk(0, "")]

    def broken(self, error: ApiError) -> list[bytes]:
        return [sse.frame(openai_error(error)), sse.DONE]

    def close(self) -> list[bytes]:
        tail = [sse.DONE]
        if self._chat.include_usage:
            usage = openai_usage(sum_usage(self._usages, self._chat.n))
            tail.insert(0, sse.frame({**self._base, "choices": [], "usage": usage}))
        return tail

    def _chunk(
        self, choice: int, text: str, reason: str | None = None, logprobs: dict[str, Any] | None = None, **extra: Any
    ) -> bytes:
        piece = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return sse.frame({**self._base, "choices": [piece], **extra})


DIALECT = Dialect(
    path="/completions", parse=parse, answer=answer, stream=CompletionStream, error=openai_error, id_prefix="cmpl-"
)

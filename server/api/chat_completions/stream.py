"""The chunks of a streamed chat completion: role, deltas, an empty delta with the reason, usage, [DONE]."""

from __future__ import annotations

from typing import Any

from engine.types import Usage
from server.api.base import openai_error, openai_usage, sum_usage
from server.api.chat_completions.answer import REASONS, logprobs_block
from server.api.dialect import Identity
from server.errors import ApiError
from server.http import sse
from server.types import CallArguments, CallStart, Chat, Delta, Done, Progress, Reasoning, Text


class ChatStream:
    """role chunk, deltas, an empty delta with the reason, a usage chunk when asked for, [DONE]."""

    def __init__(self, chat: Chat, identity: Identity) -> None:
        self._chat = chat
        self._identity = identity
        self._usages: list[Usage] = []
        self._reasoning = 0
        self._base = {
            "id": identity.id,
            "object": "chat.completion.chunk",
            "created": identity.created,
            "model": identity.model,
        }

    def open(self) -> list[bytes]:
        return [self._chunk(i, {"role": "assistant", "content": ""}) for i in range(self._chat.n)]

    def frames(self, choice: int, delta: Delta) -> list[bytes]:
        match delta:
            case Reasoning(text):
                return [self._chunk(choice, {"reasoning_content": text})]
            case Text(text, logprobs):
                extra = {"logprobs": logprobs_block(logprobs)} if self._chat.logprobs is not None else {}
                return [self._chunk(choice, {"content": text}, **extra)]
            case CallStart(index, call, name):
                function = {"name": name, "arguments": ""}
                piece = {"index": index, "id": call, "type": "function", "function": function}
                return [self._chunk(choice, {"tool_calls": [piece]})]
            case CallArguments(index, text):
                piece = {"index": index, "function": {"arguments": text}}
                return [self._chunk(choice, {"tool_calls": [piece]})]
            case Progress(done, total, cached) if self._chat.progress:
                progress = {"total": total, "cache": cached, "processed": done}
                return [self._frame({"choices": [self._choice(choice, {}, None)], "prompt_progress": progress})]
            case Done():
                return self._done(choice, delta)
            case _:
                return []

    def _done(self, choice: int, done: Done) -> list[bytes]:
        self._usages.append(done.usage)
        self._reasoning += done.reasoning_tokens
        extra: dict[str, Any] = {}
        if self._chat.provenance and done.provenance:
            extra["x_dspark"] = done.provenance.as_dict()
        return [self._frame({"choices": [self._choice(choice, {}, REASONS[done.reason])], **extra})]

    def heartbeat(self) -> list[bytes]:
        return [self._chunk(0, {"content": ""})]

    def broken(self, error: ApiError) -> list[bytes]:
        return [sse.frame(openai_error(error)), sse.DONE]

    def close(self) -> list[bytes]:
        tail = [sse.DONE]
        if self._chat.include_usage:
            tail.insert(
                0, self._frame({"choices": [], "usage": openai_usage(sum_usage(self._usages), self._reasoning)})
            )
        return tail

    def _choice(self, choice: int, delta: dict[str, Any], reason: str | None, **extra: Any) -> dict[str, Any]:
        return {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason, **extra}

    def _chunk(self, choice: int, delta: dict[str, Any], **extra: Any) -> bytes:
        return self._frame({"choices": [self._choice(choice, delta, None, **extra)]})

    def _frame(self, body: dict[str, Any]) -> bytes:
        whole = {**self._base, **body}
        if self._chat.include_usage:
            whole.setdefault("usage", None)
        return sse.frame(whole)

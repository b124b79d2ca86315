"""The event stream of Anthropic Messages: blocks with gapless indices, pings in silence."""

from __future__ import annotations

from typing import Any

from engine.types import Usage
from server.api.anthropic.answer import SIGNATURE, error_body, reason_of, usage_block
from server.api.dialect import Identity
from server.errors import ApiError
from server.http import sse
from server.types import CallArguments, CallStart, Chat, Delta, Done, Reasoning, Started, Text


class MessageStream:
    """message_start, blocks with gapless indices, message_delta, message_stop; pings in between."""

    def __init__(self, chat: Chat, identity: Identity) -> None:
        self._chat = chat
        self._identity = identity
        self._usage: Usage | None = None
        self._index = -1
        self._open: str | None = None
        self._called = False

    def open(self) -> list[bytes]:
        return []

    def frames(self, choice: int, delta: Delta) -> list[bytes]:
        match delta:
            case Started(prompt, cached):
                return self._start(Usage(prompt=prompt, cached=cached))
            case Reasoning(text):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                return [*self._block("thinking", block), self._delta({"type": "thinking_delta", "thinking": text})]
            case Text(text):
                if not text:
                    return []
                block = {"type": "text", "text": ""}
                return [*self._block("text", block), self._delta({"type": "text_delta", "text": text})]
            case CallStart(_, call, name):
                self._called = True
                block = {"type": "tool_use", "id": call, "name": name, "input": {}}
                return [*self._end_block(), *self._block("call", block)]
            case CallArguments(_, text):
                return [self._delta({"type": "input_json_delta", "partial_json": text})]
            case Done():
                return self._done(delta)
            case _:
                return []

    def _start(self, usage: Usage) -> list[bytes]:
        if self._usage is not None:
            return []
        self._usage = usage
        message = {
            "id": self._identity.id,
            "type": "message",
            "role": "assistant",
            "model": self._identity.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_block(usage),
        }
        return [self._event("message_start", message=message)]

    def _block(self, kind: str, block: dict[str, Any]) -> list[bytes]:
        if self._open == kind:
            return []
        ended = self._end_block()
        self._index += 1
        self._open = kind
        return [*ended, self._event("content_block_start", index=self._index, content_block=block)]

    def _end_block(self) -> list[bytes]:
        if self._open is None:
            return []
        signed = [self._delta({"type": "signature_delta", "signature": SIGNATURE})] if self._open == "thinking" else []
        self._open = None
        return [*signed, self._event("content_block_stop", index=self._index)]

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._event("content_block_delta", index=self._index, delta=delta)

    def _done(self, done: Done) -> list[bytes]:
        frames = self._start(done.usage)
        if self._index < 0:
            frames += self._block("text", {"type": "text", "text": ""})
        frames += self._end_block()
        reason, stop = reason_of(done, self._called)
        extra: dict[str, Any] = {}
        if self._chat.provenance and done.provenance:
            extra["x_dspark"] = done.provenance.as_dict()
        delta = {"stop_reason": reason, "stop_sequence": stop}
        frames.append(self._event("message_delta", delta=delta, usage=usage_block(done.usage), **extra))
        frames.append(self._event("message_stop"))
        return frames

    def heartbeat(self) -> list[bytes]:
        return [self._event("ping")]

    def broken(self, error: ApiError) -> list[bytes]:
        return [sse.frame(error_body(error), "error")]

    def close(self) -> list[bytes]:
        return []

    def _event(self, kind: str, **fields: Any) -> bytes:
        return sse.frame({"type": kind, **fields}, kind)

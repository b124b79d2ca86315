"""The event stream of OpenAI Responses: numbered events, items opened only when their kind is known."""

from __future__ import annotations

from typing import Any

from server.api.dialect import Identity
from server.api.responses.answer import (
    Echo,
    call_item,
    custom_input,
    failed,
    finished,
    message_item,
    reasoning_item,
    response,
    status_of,
    text_part,
)
from server.errors import ApiError
from server.http import sse
from server.types import Block, CallArguments, CallEnd, CallStart, Chat, Delta, Done, Reasoning, Text, fresh_id


class ResponseStream:
    """created, in_progress, items with their deltas, completed or incomplete or failed."""

    def __init__(self, chat: Chat, identity: Identity) -> None:
        self._chat = chat
        self._identity = identity
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._block: Block | None = None
        self._id = ""

    @property
    def _echo(self) -> Echo:
        return self._chat.echo

    def open(self) -> list[bytes]:
        return [
            self._event("response.created", response=self._response("in_progress")),
            self._event("response.in_progress", response=self._response("in_progress")),
        ]

    def frames(self, choice: int, delta: Delta) -> list[bytes]:
        match delta:
            case Reasoning(text) if text:
                frames = self._reasoning_open()
                return [*frames, self._text_delta("response.reasoning_summary_text.delta", text, summary_index=0)]
            case Text(text) if text:
                frames = self._message_open()
                return [*frames, self._text_delta("response.output_text.delta", text, content_index=0, logprobs=[])]
            case CallStart(_, call, name):
                return [*self._finish(), *self._begin(Block("call", id=call, name=name), "fc_")]
            case CallArguments(_, text) if self._block is not None:
                self._block.text += text
                if self._custom:
                    return []
                return [self._here("response.function_call_arguments.delta", delta=text)]
            case CallEnd():
                return self._finish()
            case Done():
                return self._done(delta)
            case _:
                return []

    # Items ------------------------------------------------------------------------------------------------------------

    @property
    def _custom(self) -> bool:
        return self._block is not None and self._block.name in self._echo.custom

    def _begin(self, block: Block, prefix: str) -> list[bytes]:
        self._block, self._id = block, fresh_id(prefix)
        return [
            self._event("response.output_item.added", output_index=len(self._output), item=self._item("in_progress"))
        ]

    def _item(self, status: str, *, whole: bool = False) -> dict[str, Any]:
        assert self._block is not None
        text = self._block.text if whole else None
        if self._block.kind == "reasoning":
            return reasoning_item(self._id, text, status)
        if self._block.kind == "text":
            return message_item(self._id, text, status)
        return call_item(self._chat, self._id, self._block, status)

    def _reasoning_open(self) -> list[bytes]:
        if self._block is not None and self._block.kind == "reasoning":
            return []
        part = {"type": "summary_text", "text": ""}
        frames = [*self._finish(), *self._begin(Block("reasoning"), "rs_")]
        return [*frames, self._here("response.reasoning_summary_part.added", summary_index=0, part=part)]

    def _message_open(self) -> list[bytes]:
        if self._block is not None and self._block.kind == "text":
            return []
        frames = [*self._finish(), *self._begin(Block("text"), "msg_")]
        return [*frames, self._here("response.content_part.added", content_index=0, part=text_part(""))]

    def _text_delta(self, kind: str, text: str, **fields: Any) -> bytes:
        assert self._block is not None
        self._block.text += text
        return self._here(kind, delta=text, **fields)

    def _finish(self, status: str = "completed") -> list[bytes]:
        """Close the open item, if any."""
        block = self._block
        if block is None:
            return []
        frames: list[bytes] = []
        if block.kind == "reasoning":
            part = {"type": "summary_text", "text": block.text}
            frames.append(self._here("response.reasoning_summary_text.done", summary_index=0, text=block.text))
            frames.append(self._here("response.reasoning_summary_part.done", summary_index=0, part=part))
        elif block.kind == "text":
            frames.append(self._here("response.output_text.done", content_index=0, text=block.text, logprobs=[]))
            frames.append(self._here("response.content_part.done", content_index=0, part=text_part(block.text)))
        elif self._custom:
            text = custom_input(block.text)
            frames.append(self._here("response.custom_tool_call_input.delta", delta=text))
            frames.append(self._here("response.custom_tool_call_input.done", input=text))
        else:
            name = str(self._item(status)["name"])
            frames.append(self._here("response.function_call_arguments.done", name=name, arguments=block.text))
        item = self._item(status, whole=True)
        frames.append(self._event("response.output_item.done", output_index=len(self._output), item=item))
        self._output.append(item)
        self._block = None
        return frames

    # The end ----------------------------------------------------------------------------------------------------------

    def _done(self, done: Done) -> list[bytes]:
        status = status_of(done)
        frames = self._finish(status)
        body = finished(self._chat, self._identity, status, self._output, done)
        return [*frames, self._event(f"response.{status}", response=body)]

    def heartbeat(self) -> list[bytes]:
        return [self._event("response.in_progress", response=self._response("in_progress"))]

    def broken(self, error: ApiError) -> list[bytes]:
        return [self._event("response.failed", response=failed(self._chat, self._identity, error))]

    def close(self) -> list[bytes]:
        return []

    def _response(self, status: str) -> dict[str, Any]:
        return response(self._chat, self._identity, status, list(self._output))

    def _here(self, kind: str, **fields: Any) -> bytes:
        """An event about the open item."""
        return self._event(kind, item_id=self._id, output_index=len(self._output), **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return sse.frame(body, kind)

"""The response object of OpenAI Responses in any of its states, and its output items."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.chat.foreign_text import read_json
from engine.types import Usage
from server.api.dialect import Identity
from server.errors import ApiError
from server.types import Answer, Block, Chat, Done, fresh_id

JOINT = "__"
"""Between a namespace and its tool in the name that the model sees."""


@dataclass(slots=True)
class Echo:
    """What the answer repeats of its request."""

    instructions: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tool_choice: Any = "auto"
    parallel: bool = True
    max_output_tokens: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    effort: str | None = None
    summary: str | None = None
    format: dict[str, Any] = field(default_factory=lambda: {"type": "text"})
    previous: str | None = None
    keep: Callable[[dict[str, Any]], None] | None = None
    """Stores the finished answer, unless the request said not to."""
    names: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """What the client calls its user and its cache, repeated as given."""
    custom: frozenset[str] = frozenset()
    """Names of free-form tools."""


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    parts = [] if text is None else [text_part(text)]
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": parts}


def reasoning_item(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"id": item_id, "type": "reasoning", "status": status, "summary": summary}


def call_item(chat: Chat, item_id: str, block: Block, status: str) -> dict[str, Any]:
    """A function call under the name and namespace that the client knows, or a free-form call with its text."""
    namespace = next((t.namespace for t in chat.tools if t.name == block.name), None)
    name = block.name[len(namespace) + len(JOINT) :] if namespace else block.name
    echo: Echo = chat.echo
    if block.name in echo.custom:
        body = {"type": "custom_tool_call", "input": custom_input(block.text) if block.text else ""}
    else:
        body = {"type": "function_call", "arguments": block.text}
    item = {"id": item_id, "call_id": block.id, "name": name, "status": status, **body}
    if namespace:
        item["namespace"] = namespace
    return item


def custom_input(arguments: str) -> str:
    try:
        value = read_json(arguments)
    except ValueError:
        return arguments
    found = value.get("input", "") if isinstance(value, dict) else value
    return found if isinstance(found, str) else json.dumps(found)


def usage_block(usage: Usage, reasoning: int) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def output_items(chat: Chat, found: Answer, status: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in found.blocks:
        if block.kind == "reasoning":
            items.append(reasoning_item(fresh_id("rs_"), block.text, status))
        elif block.kind == "text":
            items.append(message_item(fresh_id("msg_"), block.text, status))
        elif block.complete:
            items.append(call_item(chat, fresh_id("fc_"), block, "completed"))
    return items


def response(
    chat: Chat, identity: Identity, status: str, output: list[dict[str, Any]], done: Done | None = None
) -> dict[str, Any]:
    """The response object in any of its states."""
    echo: Echo = chat.echo
    body: dict[str, Any] = {
        "id": identity.id,
        "object": "response",
        "created_at": identity.created,
        "completed_at": identity.created if status == "completed" else None,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": echo.instructions,
        "max_output_tokens": echo.max_output_tokens,
        "max_tool_calls": None,
        "model": identity.model,
        "output": output,
        "parallel_tool_calls": echo.parallel,
        "previous_response_id": echo.previous,
        "reasoning": {"effort": echo.effort, "summary": echo.summary},
        "service_tier": "default",
        "store": echo.keep is not None,
        "text": {"format": echo.format},
        "tool_choice": echo.tool_choice,
        "tools": echo.tools,
        "top_logprobs": 0,
        **{name: getattr(chat.law, name) for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty")},
        "truncation": "disabled",
        "usage": usage_block(done.usage, done.reasoning_tokens) if done else None,
        "metadata": echo.metadata,
        **dict.fromkeys(("user", "safety_identifier", "prompt_cache_key")),
        **echo.names,
    }
    if chat.provenance and done and done.provenance:
        body["x_dspark"] = done.provenance.as_dict()
    return body


def finished(
    chat: Chat, identity: Identity, status: str, output: list[dict[str, Any]], done: Done | None
) -> dict[str, Any]:
    """The response at its end, which is kept for later requests."""
    body = response(chat, identity, status, output, done)
    echo: Echo = chat.echo
    if echo.keep is not None:
        echo.keep(body)
    return body


def status_of(done: Done | None) -> str:
    return "incomplete" if done is not None and done.reason == "length" else "completed"


def answer(chat: Chat, answers: list[Answer], identity: Identity) -> dict[str, Any]:
    found = answers[0]
    status = status_of(found.done)
    return finished(chat, identity, status, output_items(chat, found, status), found.done)


def failed(chat: Chat, identity: Identity, error: ApiError) -> dict[str, Any]:
    return {
        **response(chat, identity, "failed", []),
        "error": {"code": "server_error", "message": error.message},
    }

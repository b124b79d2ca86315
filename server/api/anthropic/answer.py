"""The answer of Anthropic Messages as one body, what its events share with it, and the shape of its errors."""

from __future__ import annotations

from typing import Any

from engine.chat.foreign_text import read_json
from engine.types import Usage
from server.api.dialect import Identity
from server.errors import ApiError, Kind
from server.types import Answer, Chat, Done

SIGNATURE = "ZHNwYXJr"
"""Clients echo a thinking block only with a signature; this one says nothing."""

_ERRORS: dict[Kind, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "timeout": "timeout_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "unavailable": "overloaded_error",
    "server": "api_error",
}


def error_body(error: ApiError) -> dict[str, Any]:
    return {"type": "error", "error": {"type": _ERRORS[error.kind], "message": error.message}}


def usage_block(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def reason_of(done: Done | None, calls: bool) -> tuple[str, str | None]:
    if done is None:
        return "end_turn", None
    if done.reason == "length":
        return "max_tokens", None
    if done.reason == "tool_calls" or calls:
        return "tool_use", None
    if done.reason == "stop_sequence":
        return "stop_sequence", done.stop
    return "end_turn", None


def _input(text: str) -> dict[str, Any]:
    try:
        value = read_json(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {"value": value}


def answer(chat: Chat, answers: list[Answer], identity: Identity) -> dict[str, Any]:
    found = answers[0]
    blocks: list[dict[str, Any]] = []
    for block in found.blocks:
        if block.kind == "reasoning":
            blocks.append({"type": "thinking", "thinking": block.text, "signature": SIGNATURE})
        elif block.kind == "text":
            blocks.append({"type": "text", "text": block.text})
        elif block.complete:
            blocks.append({"type": "tool_use", "id": block.id, "name": block.name, "input": _input(block.text)})
    reason, stop = reason_of(found.done, bool(found.calls()))
    body: dict[str, Any] = {
        "id": identity.id,
        "type": "message",
        "role": "assistant",
        "model": identity.model,
        "content": blocks or [{"type": "text", "text": ""}],
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": usage_block(found.done.usage if found.done else Usage()),
    }
    if chat.provenance and found.done and found.done.provenance:
        body["x_dspark"] = found.done.provenance.as_dict()
    return body

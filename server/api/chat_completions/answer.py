"""The answer of OpenAI Chat Completions as one body, and what its chunks share with it."""

from __future__ import annotations

from typing import Any

from server.api.base import add_usage, openai_usage, reasoning_tokens
from server.api.dialect import Identity
from server.types import Answer, Chat, TokenLogprob

REASONS = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_calls": "tool_calls", "cancel": "stop"}


def answer(chat: Chat, answers: list[Answer], identity: Identity) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": identity.id,
        "object": "chat.completion",
        "created": identity.created,
        "model": identity.model,
        "choices": [_answer_choice(chat, i, a) for i, a in enumerate(answers)],
        "usage": openai_usage(add_usage(answers), reasoning_tokens(answers)),
    }
    if chat.provenance:
        body["x_dspark"] = [a.done.provenance.as_dict() for a in answers if a.done and a.done.provenance]
        if chat.n == 1:
            body["x_dspark"] = body["x_dspark"][0] if body["x_dspark"] else None
    return body


def _answer_choice(chat: Chat, index: int, found: Answer) -> dict[str, Any]:
    calls = found.calls()
    message: dict[str, Any] = {"role": "assistant", "content": found.text or (None if calls else ""), "refusal": None}
    if found.reasoning:
        message["reasoning_content"] = found.reasoning
    if calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}} for c in calls
        ]
    return {
        "index": index,
        "message": message,
        "logprobs": None if chat.logprobs is None else logprobs_block(found.logprobs),
        "finish_reason": REASONS[found.done.reason] if found.done else "stop",
    }


def logprobs_block(entries: list[TokenLogprob] | tuple[TokenLogprob, ...]) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": e.text,
                "bytes": list(e.bytes),
                "logprob": e.logprob,
                "top_logprobs": [{"token": t, "bytes": list(b), "logprob": p} for t, b, p in e.top],
            }
            for e in entries
        ],
        "refusal": None,
    }

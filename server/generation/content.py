"""Pieces of message content that all dialects share: pictures, joined text, tool calls for templates.

Fetches nothing: a picture must be in the request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from server.errors import bad
from server.types import Image, Message

_DATA_URI = re.compile(r"data:(image/[\w.+-]+)?(?:;[\w=.-]+)*;base64,", re.IGNORECASE)


def image_from_uri(uri: str, param: str) -> Image:
    match = _DATA_URI.match(uri)
    if not match:
        raise bad(f"{param}: give the image as a base64 data URI; this server fetches no addresses.", param)
    return image_from_base64(uri[match.end() :], match[1] or "", param)


def image_from_base64(data: str, media_type: str, param: str) -> Image:
    try:
        return Image(base64.b64decode(data, validate=True), media_type)
    except (binascii.Error, ValueError) as error:
        raise bad(f"{param}: the image is not valid base64.", param) from error


def picture(uri: str, param: str, images: list[Image]) -> Image:
    """A picture of a message, counted among the request's."""
    image = image_from_uri(uri, param)
    images.append(image)
    return image


def content(parts: Sequence[str | Image]) -> str | list[dict[str, Any]]:
    """Template content: one string when there is only text, else typed parts in order."""
    if all(isinstance(p, str) for p in parts):
        return "\n".join(p for p in parts if isinstance(p, str))
    return [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in parts]


def tool_call(call_id: str, name: str, arguments: str | dict[str, Any]) -> dict[str, Any]:
    """A call in the shape that templates read: arguments as an object where they are one."""
    value: Any = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments or "{}")
        except ValueError:
            value = arguments
        if not isinstance(value, dict):
            value = arguments
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": value}}


def beginning(messages: Sequence[Message]) -> str:
    """A name for a conversation that has none: how it begins, up to the first user turn, which later turns repeat."""
    first = next((i for i, m in enumerate(messages) if m["role"] == "user"), None)
    if first is None:
        return ""
    text = json.dumps(messages[: first + 1], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def merge_calls(messages: list[Message]) -> list[Message]:
    """Neighbouring assistant messages become one: templates expect a turn's reasoning, text and calls together."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is None or message["role"] != "assistant" or last["role"] != "assistant":
            merged.append(message)
            continue
        for key in ("content", "reasoning_content"):
            both = [t for t in (last.get(key), message.get(key)) if t]
            if both and all(isinstance(t, str) for t in both):
                last[key] = "\n".join(both)
        if message.get("tool_calls"):
            last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]
    return merged


def name_results(messages: list[Message]) -> list[Message]:
    """Give each tool result its tool's name, which some templates print."""
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool" and not message.get("name") and message.get("tool_call_id") in names:
            message["name"] = names[message["tool_call_id"]]
    return messages

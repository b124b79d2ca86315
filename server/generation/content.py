"""Pieces of message content that all dialects share: blocks, pictures, joined text, tool calls for templates.

What has happened is read by the rule of engine/chat/history.py: it never fails, what cannot be read is a note. Fetches
nothing: a picture must be in the request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from engine.chat.history import note, picture_note
from server.errors import ApiError, bad, from_validation
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


def picture(load: Callable[[], Image], images: list[Image], *, past: bool) -> str | Image:
    """A picture of a message, counted among the request's; a note for one that has happened and cannot be read."""
    try:
        image = load()
    except ApiError:
        if not past:
            raise
        return picture_note("")
    images.append(image)
    return image


def read_block(raw: Any, kinds: Mapping[str, type[Any]], path: str, *, past: bool) -> Any:
    """A block as the one of `kinds` that its type names; a note, which is a string, for one that has happened and is
    none of them.

    Raises:
        ApiError: the block belongs to the message that is being sent.
    """
    kind = raw.get("type") if isinstance(raw, dict) else None
    wanted = kinds.get(kind) if isinstance(kind, str) else None
    if wanted is not None:
        try:
            return msgspec.convert(raw, wanted)
        except msgspec.ValidationError as error:
            if not past:
                raise at_path(error, path) from error
    if past:
        return raw if isinstance(raw, str) else note(raw)
    if kind is None:
        raise bad(f"{path}.type: is missing.", f"{path}.type")
    raise bad(f"{path}.type: '{kind}' cannot be read here; send {', '.join(kinds)}.", f"{path}.type")


def at_path(error: Exception, path: str) -> ApiError:
    """A decoder's complaint about something inside `path`."""
    found = from_validation(str(error))
    where = f"{path}.{found.param}" if found.param else path
    return bad(f"{path}.{found.message}" if found.param else f"{path}: {found.message}", where)


def blocks(given: Any, path: str, *, past: bool) -> list[Any] | str:
    """Content that is a text or a list of blocks; of what has happened, whatever it is."""
    if given is None and past:
        return ""
    if isinstance(given, str | list):
        return given
    if past:
        return note(given)
    raise bad(f"{path}: Expected `string | array`.", path)


def content(parts: Sequence[str | Image]) -> str | list[dict[str, Any]]:
    """Template content: one string when there is only text, else typed parts in order."""
    if all(isinstance(p, str) for p in parts):
        return "\n".join(p for p in parts if isinstance(p, str))
    return [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in parts]


def tool_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call as it was made; what of it templates can read is decided where they are used."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


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
            function = call.get("function")
            if isinstance(function, dict) and isinstance(call.get("id"), str):
                names[call["id"]] = str(function.get("name", ""))
        if message["role"] == "tool" and not message.get("name") and message.get("tool_call_id") in names:
            message["name"] = names[message["tool_call_id"]]
    return messages

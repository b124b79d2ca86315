"""History is history: what stands in an earlier turn has already happened, and nothing in it makes a request fail.

What cannot be used of it (a call that was cut off, a picture for a model that reads text, a block of another vendor)
becomes a short note in the prompt. Only the message being sent can be refused. Front ends and the server use this one
rule. Knows no template, no dialect and no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from engine.chat.foreign_text import read_json

Message = Mapping[str, Any]

_SHORT = 400
"""Characters of a value that is no text."""
_NAMES = ("name", "tool_name", "title", "url", "source", "filename", "file_id")
_TEXTS = ("text", "content", "summary", "output", "input", "arguments", "query", "action", "code", "error_code")


def sent_from(roles: Sequence[str]) -> int:
    """Index of the first message that is being sent: those behind the last answer. An answer at the very end is one
    that is to go on, and belongs to what is sent."""
    end = len(roles) - 1 if roles and roles[-1] == "assistant" else len(roles)
    return next((i + 1 for i in range(end - 1, -1, -1) if roles[i] == "assistant"), 0)


def happened(roles: Sequence[str]) -> list[bool]:
    """For each message whether it has happened already: earlier turns, and what tools gave back."""
    sent = sent_from(roles)
    return [i < sent or role in ("assistant", "tool", "function") for i, role in enumerate(roles)]


def note(block: Any) -> str:
    """A few words, between brackets, for a block that nothing here can read: its kind, its names and its text."""
    if not isinstance(block, Mapping):
        return f"[{_short(block)}]"
    fields = cast("Mapping[str, Any]", block)
    head = " ".join([str(fields.get("type") or "block"), *_names(fields)])
    body = _body(fields)
    return f"[{head}: {body}]" if body else f"[{head}]"


def tells(block: Mapping[str, Any]) -> bool:
    """Whether there is more to say of a block than its kind."""
    return bool(_names(block) or _body(block))


def _names(fields: Mapping[str, Any]) -> list[str]:
    return [v for n in _NAMES if isinstance(v := fields.get(n), str) and v]


def _body(fields: Mapping[str, Any]) -> str:
    return "\n".join(t for n in _TEXTS if (t := _told(fields.get(n))))


def _told(value: Any) -> str:
    """Text in a block's field, without what is encrypted or encoded."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(t for v in cast("list[Any]", value) if (t := _told_part(v)))
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return _told_part(fields) if "type" in fields else _short(fields)
    return ""


def _told_part(part: Any) -> str:
    if isinstance(part, Mapping):
        fields = cast("Mapping[str, Any]", part)
        text = fields.get("text")
        return text if isinstance(text, str) else note(fields)
    return part if isinstance(part, str) else ""


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"


# Calls ----------------------------------------------------------------------------------------------------------------


def readable_calls(message: Message) -> dict[str, Any]:
    """The message with its calls as templates read them; a call whose arguments are no object, as one that a length
    limit cut is, stands in its text."""
    out = dict(message)
    calls: list[dict[str, Any]] = []
    lost: list[str] = []
    for call in cast("Sequence[Any]", out.pop("tool_calls", None) or ()):
        read = _call(call)
        if read is None:
            lost.append(_lost_call(call))
        else:
            calls.append(read)
    if calls:
        out["tool_calls"] = calls
    if lost:
        out["content"] = with_text(out.get("content"), "\n".join(lost))
    return out


def _call(call: Any) -> dict[str, Any] | None:
    """Templates iterate over arguments, clients send them as a JSON string."""
    function: Any = cast("Message", call).get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return None
    fields = dict(cast("Message", function))
    arguments = fields.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments.strip() or "{}")
        except ValueError:
            return None
    if not isinstance(arguments, Mapping | None) or not isinstance(fields.get("name"), str):
        return None
    return {**cast("Message", call), "function": {**fields, "arguments": dict(cast("Message", arguments or {}))}}


def _lost_call(call: Any) -> str:
    function: Any = cast("Message", call).get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return note(call)
    fields = cast("Message", function)
    arguments = fields.get("arguments")
    return f"[call of {fields.get('name')}, cut off: {arguments if isinstance(arguments, str) else _short(arguments)}]"


def with_text(content: Any, text: str) -> Any:
    """A message's content with one more text at its end."""
    if isinstance(content, list):
        return [*cast("list[Any]", content), {"type": "text", "text": text}]
    return f"{content}\n{text}" if content else text


def tools_as_text(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Calls and results as plain text, for a template that has no place for them."""
    out: list[dict[str, Any]] = []
    for message in messages:
        plain = {k: v for k, v in message.items() if k not in ("tool_calls", "tool_call_id", "name")}
        if message.get("tool_calls"):
            calls = "\n".join(
                f"<tool_call>\n{json.dumps(c['function'], ensure_ascii=False)}\n</tool_call>"
                for c in message["tool_calls"]
            )
            plain["content"] = with_text(message.get("content"), calls)
        if message["role"] == "tool":
            plain = {"role": "user", "content": _response(message.get("content"))}
        last = out[-1] if out else None
        both = last is not None and last["role"] == plain["role"] == "user"
        if last is not None and both and isinstance(last["content"], str) and isinstance(plain["content"], str):
            last["content"] += "\n" + plain["content"]
            continue
        out.append(plain)
    return out


def _response(content: Any) -> Any:
    if not isinstance(content, list):
        return f"<tool_response>\n{content or ''}\n</tool_response>"
    around = [{"type": "text", "text": t} for t in ("<tool_response>", "</tool_response>")]
    return [around[0], *cast("list[Any]", content), around[1]]


# Pictures -------------------------------------------------------------------------------------------------------------


def picture_note(name: str) -> str:
    return f"[{name or 'picture'}]"


def without_pictures(
    messages: Sequence[Message], names: Sequence[str], usable: Callable[[int], bool]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Messages in which a picture that happened and cannot be used is a note, and the numbers of those that stay.

    names: of all pictures, in the order of their places. usable: whether the i-th can be shown to the model.
    """
    out: list[dict[str, Any]] = []
    kept: list[int] = []
    number = 0
    for message, past in zip(messages, happened([str(m["role"]) for m in messages]), strict=True):
        content = message.get("content")
        if not isinstance(content, list):
            out.append(dict(message))
            continue
        parts: list[Any] = []
        for part in cast("list[Any]", content):
            if not (isinstance(part, Mapping) and cast("Message", part).get("type") == "image"):
                parts.append(part)
                continue
            if past and not usable(number):
                parts.append({"type": "text", "text": picture_note(names[number])})
            else:
                parts.append(part)
                kept.append(number)
            number += 1
        out.append({**message, "content": parts})
    return out, kept

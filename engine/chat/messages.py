"""Messages in shapes that chat templates can read.

Clients send structured, null and repeated content, late system messages and tools; templates raise, or leave out, what
they were not written for. `forms` gives the same conversation in ever plainer shapes: text and order are kept. Knows no
tokenizer and no template.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from engine.chat.history import readable_calls, tools_as_text

Message = Mapping[str, Any]
JOIN = "\n\n"
SYSTEM_ROLES = ("system", "developer")


def normal(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Plain text content, tool-call arguments as objects, one leading system message, no later one."""
    return _fold_late([_plain(m) for m in messages])


def forms(messages: Sequence[Message]) -> Iterator[list[dict[str, Any]]]:
    """The conversation from its natural shape to the plainest: neighbours of one role joined, then the system message
    as part of the first user turn, and all that with calls and their results as text."""
    base = normal(messages)
    yield from _plainer(base)
    if any(m["role"] == "tool" or m.get("tool_calls") for m in base):
        yield from _plainer(tools_as_text(base))


def _plainer(base: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    yield base
    joined = _join_neighbours(base)
    if joined != base:
        yield joined
    if joined and joined[0]["role"] == "system":
        yield _system_into_user(joined)


def text_of(content: Any) -> Any:
    """Text of structured content; content with anything but text in it stays as it is, for templates that show it."""
    if content is None:
        return ""
    if not isinstance(content, list | tuple):
        return content
    parts = cast("list[Any]", content)
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            return [dict(p) if isinstance(p, Mapping) else {"type": "text", "text": p} for p in parts]
    return "\n".join(texts)


def _plain(message: Message) -> dict[str, Any]:
    out = dict(message)
    role = str(out.get("role", "user"))
    out["role"] = "system" if role in SYSTEM_ROLES else role
    out["content"] = text_of(out.get("content"))
    return readable_calls(out)


def _add(text: str, message: dict[str, Any], *, before: bool) -> dict[str, Any]:
    """The message with more text at one end."""
    content = message["content"]
    if isinstance(content, list):
        part = {"type": "text", "text": text}
        return {**message, "content": [part, *content] if before else [*content, part]}
    parts = [p for p in ((text, content) if before else (content, text)) if p]
    return {**message, "content": JOIN.join(parts)}


def _fold_late(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leading system messages become one; a later one joins the user turn beside it."""
    out: list[dict[str, Any]] = []
    waiting: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "system":
            text = message["content"] if isinstance(message["content"], str) else json.dumps(message["content"])
            if not out:
                out.append({**message, "content": text})
            elif len(out) == 1 and out[0]["role"] == "system":
                out[0] = _add(text, out[0], before=False)
            elif out[-1]["role"] == "user" and not waiting:
                out[-1] = _add(text, out[-1], before=False)
            elif i + 1 < len(messages) and messages[i + 1]["role"] in ("user", "system"):
                waiting.append(text)
            else:
                out.append({"role": "user", "content": JOIN.join([*waiting, text])})
                waiting = []
        elif waiting:
            out.append(_add(JOIN.join(waiting), message, before=True))
            waiting = []
        else:
            out.append(message)
    return out


def _join_neighbours(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Templates that insist on alternating roles want one message a turn."""
    out: list[dict[str, Any]] = []
    for message in messages:
        last = out[-1] if out else None
        plain = last is not None and isinstance(last["content"], str) and isinstance(message["content"], str)
        if last is not None and plain and last["role"] == message["role"] and message["role"] != "tool":
            merged = {**last, **message, "content": JOIN.join(c for c in (last["content"], message["content"]) if c)}
            calls = [*last.get("tool_calls", []), *message.get("tool_calls", [])]
            out[-1] = {**merged, "tool_calls": calls} if calls else merged
        else:
            out.append(message)
    return out


def _system_into_user(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    system, rest = messages[0], messages[1:]
    if rest and rest[0]["role"] == "user":
        return [_add(system["content"], rest[0], before=True), *rest[1:]]
    return [{"role": "user", "content": system["content"]}, *rest]


def leaves_out(messages: Sequence[Message], text: str) -> bool:
    """Whether the template silently dropped the system message."""
    first = messages[0]
    content = first.get("content")
    return first["role"] == "system" and isinstance(content, str) and content.strip() not in text

"""OpenAI Responses: input items to `Chat`. The answer and the event stream have their own files.

Kinds of tools that run at the vendor's (web search, file search) are left out; namespaces are flattened for the model
and unflattened in the answer; free-form tools become functions with one text argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from engine.chat.history import happened, note, sent_from, tells
from server.api.base import decode, effort_of
from server.api.dialect import Context
from server.api.responses.answer import JOINT, Echo
from server.api.validation import held, sampling_of, text_format, tool_choice, top_count
from server.errors import bad
from server.generation.content import (
    at_path,
    blocks,
    content,
    image_from_uri,
    merge_calls,
    name_results,
    picture,
    read_block,
    tool_call,
)
from server.types import Chat, Format, Image, Message, Tool, ToolChoice

# The request ----------------------------------------------------------------------------------------------------------


class _Format(msgspec.Struct):
    type: str = "text"
    schema: Any = None


class _TextConfig(msgspec.Struct):
    format: _Format | None = None


class _ReasoningConfig(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    tools: list[_Tool] | None = None


class _Conversation(msgspec.Struct):
    id: str


class _Choice(msgspec.Struct):
    type: str = "function"
    name: str | None = None
    namespace: str | None = None


class _Request(msgspec.Struct, kw_only=True):
    input: str | list[dict[str, Any]]
    model: str = ""
    instructions: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | _Choice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    text: _TextConfig | None = None
    reasoning: _ReasoningConfig | None = None
    stream: bool | None = False
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    conversation: str | _Conversation | None = None
    x_dspark: bool | None = None
    drafter: str | None = None
    draft_cap: int | None = None


class _Text(msgspec.Struct):
    text: str = ""


class _Refusal(msgspec.Struct):
    refusal: str = ""


class _Image(msgspec.Struct):
    image_url: str


_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_PARTS: dict[str, type[Any]] = {**dict.fromkeys(_TEXTS, _Text), "input_image": _Image, "refusal": _Refusal}


class _MessageItem(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: Any = None


class _CallItem(msgspec.Struct):
    call_id: str
    name: str
    arguments: Any = ""
    namespace: str | None = None
    input: str | None = None


class _OutputItem(msgspec.Struct):
    call_id: str
    output: Any = None


class _Summary(msgspec.Struct):
    text: str = ""


class _ReasoningItem(msgspec.Struct):
    summary: list[_Summary] = []
    content: list[_Summary] | None = None


def parse(body: bytes, context: Context) -> Chat:
    request = decode(body, _Request, "responses")
    items = (
        [{"type": "message", "role": "user", "content": request.input}]
        if isinstance(request.input, str)
        else list(request.input)
    )
    if request.previous_response_id:
        items = context.store.conversation(request.previous_response_id) + items
    items = [_resolved(item, f"input[{i}]", context) for i, item in enumerate(items)]
    if not items:
        raise bad("input: must not be empty.", "input")
    images: list[Image] = []
    messages: list[Message] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    messages += _messages(items, images)
    tools = tuple(t for given in request.tools or () for t in _tools(given))
    effort = effort_of(request.reasoning.effort if request.reasoning else None, "reasoning.effort")
    thinking = False if effort == "none" else None
    top_count(request.top_logprobs, "top_logprobs")
    return Chat(
        model=request.model,
        messages=name_results(merge_calls(messages)),
        tools=tools,
        choice=_choice(request, tools),
        format=_format(request.text.format if request.text else None),
        sampling=sampling_of(request, "responses"),
        max_tokens=held("max_tokens", request.max_output_tokens, "max_output_tokens"),
        thinking=thinking,
        effort=None if effort == "none" else effort,
        images=images,
        # An output that is whole is answered by a new one; only a message of the client's own making goes on.
        final="" if _role(items[-1]) == "assistant" and "id" not in items[-1] else "header",
        drafter=request.drafter,
        cap=held("cap", request.draft_cap, "draft_cap"),
        stream=bool(request.stream),
        provenance=bool(request.x_dspark),
        conversation=_conversation(request),
        echo=_echo(request, msgspec.json.decode(body), items, context),
    )


def _conversation(request: _Request) -> str:
    given = request.conversation
    return request.prompt_cache_key or (given.id if isinstance(given, _Conversation) else given) or ""


def _echo(request: _Request, raw: dict[str, Any], items: list[dict[str, Any]], context: Context) -> Echo:
    reasoning = request.reasoning or _ReasoningConfig()
    return Echo(
        instructions=request.instructions,
        tools=[_whole(t, description=None, parameters=None, strict=None) for t in raw.get("tools") or ()],
        tool_choice=raw.get("tool_choice") or "auto",
        parallel=request.parallel_tool_calls is not False,
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata or {},
        effort=reasoning.effort,
        summary=reasoning.summary,
        format=_whole((raw.get("text") or {}).get("format") or {}, type="text"),
        previous=request.previous_response_id,
        keep=None if request.store is False else lambda body: context.store.put(body, items),
        names={
            "user": request.user,
            "safety_identifier": request.safety_identifier,
            "prompt_cache_key": request.prompt_cache_key,
        },
        custom=frozenset(t.name for t in request.tools or () if t.type == "custom"),
    )


def _whole(given: dict[str, Any], **missing: Any) -> dict[str, Any]:
    """What was given, with the fields that an answer must show even when the request left them out."""
    kind = given.get("type", missing.get("type"))
    if kind == "json_schema":
        missing = {"name": "", "description": None, "strict": False}
    elif kind not in ("function", "text"):
        missing = {}
    return {**missing, **given}


def _resolved(item: dict[str, Any], path: str, context: Context) -> dict[str, Any]:
    """The item itself in place of a reference to one that is stored."""
    if item.get("type") != "item_reference":
        return item
    return context.store.item(str(item.get("id")), f"{path}.id")


_ROLES = {
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "reasoning": "assistant",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
}


def _role(item: dict[str, Any]) -> str:
    kind = item.get("type", "message")
    return str(item.get("role")) if kind == "message" else _ROLES.get(str(kind), "")


def _messages(items: list[dict[str, Any]], images: list[Image]) -> list[Message]:
    """Chat messages for the items; those that happened are read by the rule of engine/chat/history.py."""
    messages: list[Message] = []
    roles = [_role(item) for item in items]
    for i, past in enumerate(happened(roles)):
        path, item = f"input[{i}]", items[i]
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            raise bad(f"{path}.type: must be a string.", f"{path}.type")
        try:
            if kind in _READERS:
                messages += _READERS[kind](item, path, images, past)
            elif tells(item):
                # Of tools that ran at the vendor's, for instance.
                messages.append({"role": "assistant", "content": note(item)})
        except msgspec.ValidationError as error:
            if i >= sent_from(roles):
                raise at_path(error, path) from error
            messages.append({"role": "user" if _role(item) == "user" else "assistant", "content": note(item)})
    return messages


def _message(raw: dict[str, Any], path: str, images: list[Image], past: bool) -> list[Message]:
    item = msgspec.convert(raw, _MessageItem)
    role = "system" if item.role == "developer" else item.role
    return [{"role": role, "content": _content(item.content, f"{path}.content", images, past)}]


def _call(raw: dict[str, Any], path: str, images: list[Image], past: bool) -> list[Message]:
    item = msgspec.convert(raw, _CallItem)
    name = f"{item.namespace}{JOINT}{item.name}" if item.namespace else item.name
    arguments = {"input": item.input} if raw["type"] == "custom_tool_call" else item.arguments
    return [{"role": "assistant", "content": "", "tool_calls": [tool_call(item.call_id, name, arguments)]}]


def _output(raw: dict[str, Any], path: str, images: list[Image], past: bool) -> list[Message]:
    item = msgspec.convert(raw, _OutputItem)
    text = _content(item.output, f"{path}.output", images, True)
    return [{"role": "tool", "tool_call_id": item.call_id, "content": text}]


def _thought(raw: dict[str, Any], path: str, images: list[Image], past: bool) -> list[Message]:
    item = msgspec.convert(raw, _ReasoningItem)
    text = "\n".join(s.text for s in item.content or item.summary)
    return [{"role": "assistant", "content": "", "reasoning_content": text}] if text else []


_READERS: dict[str, Callable[[dict[str, Any], str, list[Image], bool], list[Message]]] = {
    "message": _message,
    "function_call": _call,
    "custom_tool_call": _call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "reasoning": _thought,
}


def _content(given: Any, path: str, images: list[Image], past: bool) -> Any:
    found = blocks(given, path, past=past)
    if isinstance(found, str):
        return found
    parts: list[str | Image] = []
    for i, raw in enumerate(found):
        where = f"{path}[{i}]"
        part = read_block(raw, _PARTS, where, past=past)
        if isinstance(part, _Text):
            part = part.text
        elif isinstance(part, _Refusal):
            part = part.refusal
        elif isinstance(part, _Image):
            part = picture(partial(image_from_uri, part.image_url, f"{where}.image_url"), images, past=past)
        parts.append(part)
    return content(parts)


def _tools(given: _Tool, namespace: str | None = None) -> list[Tool]:
    name = f"{namespace}{JOINT}{given.name}" if namespace else given.name
    if given.type == "function":
        return [Tool(name, given.description or "", given.parameters or {}, namespace)]
    if given.type == "namespace":
        return [t for inner in given.tools or () for t in _tools(inner, given.name)]
    if given.type == "custom":
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        return [Tool(name, given.description or "", schema, namespace)]
    return []


def _choice(request: _Request, tools: tuple[Tool, ...]) -> ToolChoice:
    given = request.tool_choice
    if isinstance(given, _Choice):
        name = f"{given.namespace}{JOINT}{given.name}" if given.namespace else given.name or ""
        return tool_choice(None, name, tools, request.parallel_tool_calls)
    return tool_choice(given, None, tools, request.parallel_tool_calls)


def _format(given: _Format | None) -> Format | None:
    return text_format(given.type, given.schema, "text.format") if given is not None else None

"""OpenAI Responses: input items to `Chat`, and the answer as output items. The event stream is in its own file.

Kinds of tools that run at the vendor's (web search, file search) are left out; namespaces are flattened for the model
and unflattened in the answer; free-form tools become functions with one text argument.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from engine.core import Usage
from server.content import content, image_from_uri, merge_calls, name_results, tool_call
from server.dialects.base import Identity, decode, effort_of
from server.errors import ApiError, bad, from_validation
from server.model import (
    Answer,
    Block,
    Chat,
    Done,
    Format,
    Image,
    Message,
    Tool,
    ToolChoice,
    fresh_id,
    positive,
    sampling_fields,
    schema_format,
)

JOINT = "__"
"""Between a namespace and its tool in the name that the model sees."""

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
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    seed: int | None = None
    text: _TextConfig | None = None
    reasoning: _ReasoningConfig | None = None
    stream: bool | None = False
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: dict[str, Any] | None = None
    x_dspark: bool | None = None
    drafter: str | None = None
    draft_cap: int | None = None


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    image_url: str | None = None
    refusal: str | None = None


class _MessageItem(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]


class _CallItem(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | None = None
    input: str | None = None


class _OutputItem(msgspec.Struct):
    call_id: str
    output: str | list[_Part]


class _Summary(msgspec.Struct):
    text: str = ""


class _ReasoningItem(msgspec.Struct):
    summary: list[_Summary] = []
    content: list[_Summary] | None = None


@dataclass(slots=True)
class Echo:
    """What the answer repeats of its request."""

    instructions: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tool_choice: Any = "auto"
    parallel: bool = True
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    effort: str | None = None
    format: dict[str, Any] = field(default_factory=lambda: {"type": "text"})
    previous: str | None = None
    store: bool = True
    items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The whole input, earlier turns included, for previous_response_id."""
    custom: frozenset[str] = frozenset()
    """Names of free-form tools."""


def parse(body: bytes, recall: Callable[[str], list[dict[str, Any]]]) -> Chat:
    """recall: the items of an earlier response, its output included; raises ApiError when unknown."""
    request = decode(body, _Request)
    items = (
        [{"type": "message", "role": "user", "content": request.input}]
        if isinstance(request.input, str)
        else list(request.input)
    )
    if request.previous_response_id:
        items = recall(request.previous_response_id) + items
    if not items:
        raise bad("input: must not be empty.", "input")
    images: list[Image] = []
    messages: list[Message] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    messages += _messages(items, images)
    custom = frozenset(t.name for t in request.tools or () if t.type == "custom")
    tools = tuple(t for given in request.tools or () for t in _tools(given))
    effort = effort_of(request.reasoning.effort if request.reasoning else None, "reasoning.effort")
    thinking = False if effort == "none" else None
    top = request.top_logprobs
    if top is not None and not 0 <= top <= 20:
        raise bad(f"top_logprobs: must be between 0 and 20, got {top}.", "top_logprobs")
    raw = msgspec.json.decode(body)
    return Chat(
        dialect="responses",
        model=request.model,
        messages=name_results(merge_calls(messages)),
        tools=tools,
        choice=_choice(request, tools),
        format=_format(request.text.format if request.text else None),
        sampling=sampling_fields(temperature=request.temperature, top_p=request.top_p, seed=request.seed),
        max_tokens=positive(request.max_output_tokens, "max_output_tokens"),
        thinking=thinking,
        effort=None if effort == "none" else effort,
        images=images,
        drafter=request.drafter,
        cap=request.draft_cap,
        stream=bool(request.stream),
        provenance=bool(request.x_dspark),
        echo=Echo(
            instructions=request.instructions,
            tools=raw.get("tools") or [],
            tool_choice=raw.get("tool_choice") or "auto",
            parallel=request.parallel_tool_calls is not False,
            temperature=request.temperature,
            top_p=request.top_p,
            max_output_tokens=request.max_output_tokens,
            metadata=request.metadata or {},
            effort=effort,
            format=(raw.get("text") or {}).get("format") or {"type": "text"},
            previous=request.previous_response_id,
            store=request.store is not False,
            items=items,
            custom=custom,
        ),
    )


def _convert(item: dict[str, Any], kind: type[Any], path: str) -> Any:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        found = from_validation(str(error))
        where = f"{path}.{found.param}" if found.param else path
        raise bad(f"{path}.{found.message}" if found.param else f"{path}: {found.message}", where) from error


def _messages(items: list[dict[str, Any]], images: list[Image]) -> list[Message]:
    messages: list[Message] = []
    for i, item in enumerate(items):
        path, kind = f"input[{i}]", item.get("type", "message")
        if kind == "message":
            messages.append(_message(_convert(item, _MessageItem, path), path, images))
        elif kind in ("function_call", "custom_tool_call"):
            found: _CallItem = _convert(item, _CallItem, path)
            name = f"{found.namespace}{JOINT}{found.name}" if found.namespace else found.name
            arguments = json.dumps({"input": found.input}) if kind == "custom_tool_call" else found.arguments
            messages.append(
                {"role": "assistant", "content": "", "tool_calls": [tool_call(found.call_id, name, arguments)]}
            )
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output: _OutputItem = _convert(item, _OutputItem, path)
            text = _content(output.output, f"{path}.output", images)
            messages.append({"role": "tool", "tool_call_id": output.call_id, "content": text})
        elif kind == "reasoning":
            thought: _ReasoningItem = _convert(item, _ReasoningItem, path)
            text = "\n".join(s.text for s in thought.content or thought.summary)
            if text:
                messages.append({"role": "assistant", "content": "", "reasoning_content": text})
        elif not isinstance(kind, str):
            raise bad(f"{path}.type: must be a string.", f"{path}.type")
        # Items of tools that ran at the vendor's tell the model nothing that it could use here.
    return messages


def _message(item: _MessageItem, path: str, images: list[Image]) -> Message:
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": _content(item.content, f"{path}.content", images)}


def _content(given: str | list[_Part], path: str, images: list[Image]) -> Any:
    if isinstance(given, str):
        return given
    parts: list[str | Image] = []
    for i, part in enumerate(given):
        where = f"{path}[{i}]"
        if part.type in ("input_text", "output_text", "text", "summary_text", "reasoning_text"):
            parts.append(part.text or "")
        elif part.type == "input_image":
            image = image_from_uri(part.image_url or "", f"{where}.image_url")
            parts.append(image)
            images.append(image)
        elif part.type == "refusal":
            parts.append(part.refusal or "")
        else:
            raise bad(f"{where}.type: '{part.type}' cannot be read; send text or images.", f"{where}.type")
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
    parallel = request.parallel_tool_calls is not False
    given = request.tool_choice
    if isinstance(given, _Choice):
        name = f"{given.namespace}{JOINT}{given.name}" if given.namespace else given.name or ""
        if name not in {t.name for t in tools}:
            raise bad(f"tool_choice: no tool named '{name}' in tools.", "tool_choice")
        return ToolChoice("named", name, parallel)
    if given == "required" and not tools:
        raise bad("tool_choice: 'required' needs tools.", "tool_choice")
    return ToolChoice(given or "auto", "", parallel)


def _format(given: _Format | None) -> Format | None:
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return Format("json")
    if given.type == "json_schema":
        return schema_format(given.schema, "text.format.schema")
    raise bad(f"text.format.type: '{given.type}' is none of text, json_object, json_schema.", "text.format.type")


# The answer -----------------------------------------------------------------------------------------------------------


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
        value = json.loads(arguments)
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
        "reasoning": {"effort": echo.effort, "summary": None},
        "service_tier": "default",
        "store": echo.store,
        "temperature": 0.0 if echo.temperature is None else echo.temperature,
        "text": {"format": echo.format},
        "tool_choice": echo.tool_choice,
        "tools": echo.tools,
        "top_logprobs": 0,
        "top_p": 1.0 if echo.top_p is None else echo.top_p,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "usage": usage_block(done.usage, done.reasoning_tokens) if done else None,
        "user": None,
        "metadata": echo.metadata,
        "safety_identifier": None,
        "prompt_cache_key": None,
    }
    if chat.provenance and done and done.provenance:
        body["x_dspark"] = done.provenance.as_dict()
    return body


def status_of(done: Done | None) -> str:
    return "incomplete" if done is not None and done.reason == "length" else "completed"


def answer(chat: Chat, answers: list[Answer], identity: Identity) -> dict[str, Any]:
    found = answers[0]
    status = status_of(found.done)
    return response(chat, identity, status, output_items(chat, found, status), found.done)


def failed(chat: Chat, identity: Identity, error: ApiError) -> dict[str, Any]:
    return {
        **response(chat, identity, "failed", []),
        "error": {"code": "server_error", "message": error.message},
    }

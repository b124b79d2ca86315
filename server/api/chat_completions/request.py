"""The request of OpenAI Chat Completions as a `Chat`."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import msgspec

from engine.chat.history import happened, note
from server.api.base import decode, effort_of
from server.api.dialect import Context
from server.api.validation import held, positive, sampling_of, stops, text_format, tool_choice, top_count
from server.errors import bad
from server.generation.content import (
    blocks,
    content,
    image_from_uri,
    name_results,
    picture,
    read_block,
    tool_call,
)
from server.types import Chat, Format, Image, Message, Tool, ToolChoice


class _Text(msgspec.Struct, tag="text"):
    text: str


class _Refusal(msgspec.Struct, tag="refusal"):
    refusal: str = ""


class _Url(msgspec.Struct):
    url: str


class _Image(msgspec.Struct, tag="image_url"):
    image_url: _Url | str


_PARTS: dict[str, type[Any]] = {"text": _Text, "image_url": _Image, "refusal": _Refusal}


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: Any = ""
    input: str = ""
    """Of a free-form tool."""


class _Call(msgspec.Struct):
    function: _CalledFunction | None = None
    custom: _CalledFunction | None = None
    id: str | None = None


class _Message(msgspec.Struct):
    """Loose where earlier turns are concerned: they are read by the rule of engine/chat/history.py."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    name: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _Function | None = None


class _Named(msgspec.Struct):
    name: str


class _Choice(msgspec.Struct):
    function: _Named | None = None
    type: str = "function"


class _JsonSchema(msgspec.Struct):
    schema: Any = None
    name: str = ""


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _JsonSchema | None = None


class _Structured(msgspec.Struct):
    json: dict[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None
    choice: list[str] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class Sampled(msgspec.Struct, kw_only=True):
    """Fields that Completions shares."""

    model: str = ""
    stop: str | list[str] | None = None
    n: int | None = None
    max_tokens: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    x_dspark: bool | None = None
    drafter: str | None = None
    draft_cap: int | None = None
    structured_outputs: _Structured | None = None
    prompt_cache_key: str | None = None

    def structured(self) -> Format | None:
        wanted = self.structured_outputs
        if wanted is None:
            return None
        if wanted.json is not None:
            return Format("schema", wanted.json)
        if wanted.regex is not None:
            return Format("regex", wanted.regex)
        if wanted.grammar is not None:
            return Format("lark", wanted.grammar)
        if wanted.choice is not None:
            return Format("choice", tuple(wanted.choice))
        raise bad("structured_outputs: give json, regex, grammar or choice.", "structured_outputs")


class _Request(Sampled, kw_only=True):
    messages: list[_Message]
    max_completion_tokens: int | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | _Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_progress: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None


def parse(body: bytes, context: Context) -> Chat:
    request = decode(body, _Request, "chat")
    if not request.messages:
        raise bad("messages: must hold at least one message.", "messages")
    images: list[Image] = []
    messages = _messages(request.messages, images)
    tools = tuple(_tool(t.function) for t in request.tools or () if t.type == "function" and t.function)
    kwargs = dict(request.chat_template_kwargs or {})
    thinking = kwargs.pop("enable_thinking", request.enable_thinking)
    if thinking is not None and not isinstance(thinking, bool):
        raise bad("chat_template_kwargs.enable_thinking: must be true or false.", "chat_template_kwargs")
    effort = effort_of(request.reasoning_effort, "reasoning_effort")
    if effort == "none":
        effort, thinking = None, False
    return Chat(
        model=request.model,
        messages=name_results(messages),
        tools=tools,
        choice=_choice(request, tools),
        format=_format(request.response_format) or request.structured(),
        sampling=sampling_of(request, "chat"),
        max_tokens=held("max_tokens", request.max_completion_tokens, "max_completion_tokens")
        or held("max_tokens", request.max_tokens, "max_tokens"),
        stop=stops(request.stop, "stop"),
        n=positive(request.n, "n") or 1,
        logprobs=_logprobs(request.logprobs, request.top_logprobs),
        thinking=thinking,
        thinking_budget=positive(request.thinking_budget, "thinking_budget"),
        effort=effort,
        template_kwargs=kwargs,
        final=_final(request.continue_final_message, request.add_generation_prompt),
        images=images,
        drafter=request.drafter,
        cap=held("cap", request.draft_cap, "draft_cap"),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        progress=bool(request.return_progress),
        provenance=bool(request.x_dspark),
        conversation=request.prompt_cache_key or "",
    )


def _final(goes_on: bool | None, header: bool | None) -> Literal["", "continue", "header", "turn"]:
    if goes_on and header:
        raise bad(
            "continue_final_message: leave add_generation_prompt out, or set it to false.", "continue_final_message"
        )
    if goes_on:
        return "continue"
    if header is False:
        return "turn"
    return "header" if header or goes_on is False else ""


def _messages(given: list[_Message], images: list[Image]) -> list[Message]:
    past = happened([m.role for m in given])
    return [_message(m, f"messages[{i}]", images, p) for i, (m, p) in enumerate(zip(given, past, strict=True))]


def _message(message: _Message, path: str, images: list[Image], past: bool) -> Message:
    role = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    if message.content is None and not past:
        raise bad(f"{path}.content: a {message.role} message needs content.", f"{path}.content")
    out: Message = {"role": role, "content": _content(message.content, path, images, past)}
    if role == "assistant" and isinstance(message.tool_calls, list) and message.tool_calls:
        out["tool_calls"] = [_call(raw) for raw in message.tool_calls]
    for name, value in (
        ("reasoning_content", message.reasoning_content or message.reasoning),
        ("tool_call_id", message.tool_call_id),
        ("name", message.name),
    ):
        if value and isinstance(value, str):
            out[name] = value
    return out


def _call(raw: Any) -> dict[str, Any]:
    """A call of an earlier turn, in whatever shape it is."""
    try:
        call = msgspec.convert(raw, _Call)
    except msgspec.ValidationError:
        return raw if isinstance(raw, dict) else {"type": note(raw)}
    if call.function is not None:
        return tool_call(call.id or "", call.function.name, call.function.arguments)
    if call.custom is not None:
        return tool_call(call.id or "", call.custom.name, {"input": call.custom.input})
    return raw


def _content(given: Any, path: str, images: list[Image], past: bool) -> Any:
    found = blocks(given, f"{path}.content", past=past)
    if isinstance(found, str):
        return found
    parts: list[str | Image] = []
    for i, raw in enumerate(found):
        where = f"{path}.content[{i}]"
        part = read_block(raw, _PARTS, where, past=past)
        if isinstance(part, _Text):
            part = part.text
        elif isinstance(part, _Refusal):
            part = part.refusal
        elif isinstance(part, _Image):
            url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
            part = picture(partial(image_from_uri, url, f"{where}.image_url"), images, past=past)
        parts.append(part)
    return content(parts)


def _tool(function: _Function) -> Tool:
    return Tool(function.name, function.description or "", function.parameters or {})


def _choice(request: _Request, tools: tuple[Tool, ...]) -> ToolChoice:
    given = request.tool_choice
    if isinstance(given, _Choice):
        return tool_choice(None, given.function.name if given.function else "", tools, request.parallel_tool_calls)
    return tool_choice(given, None, tools, request.parallel_tool_calls)


def _format(given: _ResponseFormat | None) -> Format | None:
    if given is None:
        return None
    if given.type == "json_schema" and given.json_schema is None:
        raise bad("response_format.json_schema: is missing.", "response_format.json_schema")
    schema = given.json_schema.schema if given.json_schema else None
    return text_format(given.type, schema, "response_format", "json_schema.schema")


def _logprobs(wanted: bool | None, top: int | None) -> int | None:
    top = top_count(top, "top_logprobs")
    return (top or 0) if wanted else None

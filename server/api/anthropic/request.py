"""The request of Anthropic Messages as a `Chat`.

What agents put in and move about without meaning it is taken out here (billing line, cache_control), so that the same
conversation is the same prompt on every turn.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Literal

import msgspec

from engine.chat.history import happened, note
from engine.chat.template import EFFORTS
from server.api.base import decode
from server.api.dialect import Context
from server.api.validation import held, positive, sampling_of, schema_format, stops, tool_choice
from server.errors import bad
from server.generation.content import (
    blocks,
    content,
    image_from_base64,
    image_from_uri,
    merge_calls,
    name_results,
    picture,
    read_block,
    tool_call,
)
from server.types import Chat, Format, Image, Message, Tool, ToolChoice

_BILLING = re.compile(r"x-anthropic-[a-z-]+: [^\n]*\n?")
"""A line that clients put first and that may change with every request; a block is dropped when it is nothing else."""
_SESSION = re.compile(r"session_(?:id\W+)?([0-9a-fA-F-]{8,})")


class _Text(msgspec.Struct, tag="text"):
    text: str


class _Base64Source(msgspec.Struct, tag="base64"):
    data: str
    media_type: str = ""


class _UrlSource(msgspec.Struct, tag="url"):
    url: str


class _TextSource(msgspec.Struct, tag="text"):
    data: str
    media_type: str = ""


class _Image(msgspec.Struct, tag="image"):
    source: _Base64Source | _UrlSource


class _Document(msgspec.Struct, tag="document"):
    source: _Base64Source | _UrlSource | _TextSource
    title: str | None = None


class _SearchResult(msgspec.Struct, tag="search_result"):
    content: list[_Text]
    source: str = ""
    title: str = ""


class _ToolUse(msgspec.Struct, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class _ToolResult(msgspec.Struct, tag="tool_result"):
    tool_use_id: str
    content: Any = None
    is_error: Any = False


class _Thinking(msgspec.Struct, tag="thinking"):
    thinking: str


class _Redacted(msgspec.Struct, tag="redacted_thinking"):
    data: str = ""


_SHOWN: dict[str, type[Any]] = {
    "text": _Text,
    "image": _Image,
    "document": _Document,
    "search_result": _SearchResult,
}
_GIVEN: dict[str, type[Any]] = {**_SHOWN, "tool_result": _ToolResult}
_SAID: dict[str, type[Any]] = {
    "text": _Text,
    "tool_use": _ToolUse,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
}


class _Message(msgspec.Struct):
    """Loose where earlier turns are concerned: they are read by the rule of engine/chat/history.py."""

    role: Literal["user", "assistant", "system"]
    content: Any = None


class _Tool(msgspec.Struct):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Choice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = False


class _ThinkingConfig(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class _OutputFormat(msgspec.Struct):
    type: str
    schema: Any = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: _OutputFormat | None = None


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Count(msgspec.Struct, kw_only=True):
    """What count_tokens takes."""

    messages: list[_Message]
    model: str = ""
    system: str | list[_Text] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    thinking: _ThinkingConfig | None = None
    output_config: _OutputConfig | None = None
    output_format: _OutputFormat | None = None


class _Request(_Count, kw_only=True):
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = False
    metadata: _Metadata | None = None
    x_dspark: bool | None = None
    drafter: str | None = None
    draft_cap: int | None = None


def parse(body: bytes, context: Context) -> Chat:
    request = decode(body, _Request, "messages")
    chat = _chat(request)
    chat.sampling = sampling_of(request, "messages")
    chat.max_tokens = held("max_tokens", request.max_tokens, "max_tokens")
    chat.stop = stops(request.stop_sequences, "stop_sequences")
    chat.stream = bool(request.stream)
    chat.provenance = bool(request.x_dspark)
    chat.drafter, chat.cap = request.drafter, held("cap", request.draft_cap, "draft_cap")
    chat.conversation = _session(request.metadata)
    return chat


def _session(metadata: _Metadata | None) -> str:
    """The session that Claude Code writes into the user's id; a user alone is no conversation."""
    found = _SESSION.search(metadata.user_id or "") if metadata else None
    return found[1] if found else ""


def parse_count(body: bytes, context: Context) -> Chat:
    return _chat(decode(body, _Count))


def _chat(request: _Count) -> Chat:
    if not request.messages:
        raise bad("messages: must hold at least one message.", "messages")
    images: list[Image] = []
    messages: list[Message] = []
    system = _system(request.system)
    if system:
        messages.append({"role": "system", "content": system})
    for i, past in enumerate(happened([m.role for m in request.messages])):
        messages += _messages(request.messages[i], f"messages[{i}]", images, past)
    tools = tuple(
        Tool(t.name, t.description or "", t.input_schema)
        for t in request.tools or ()
        # Tools that run at the vendor's (web search, code execution) have a type of their own and no schema.
        if t.input_schema is not None and t.type in (None, "custom")
    )
    thinking, budget = _thinking(request.thinking)
    effort = request.output_config.effort if request.output_config and thinking is not False else None
    if effort not in EFFORTS:
        effort = None
    return Chat(
        model=request.model,
        messages=name_results(merge_calls(messages)),
        tools=tools,
        choice=_choice(request.tool_choice, tools),
        format=_format(request),
        thinking=thinking,
        thinking_budget=budget,
        effort=effort,
        images=images,
    )


def _system(given: str | list[_Text] | None) -> str:
    if given is None:
        return ""
    if isinstance(given, str):
        match = _BILLING.match(given)
        return given[match.end() :] if match else given
    return "\n\n".join(b.text for b in given if not _BILLING.fullmatch(b.text) and b.text)


def _messages(message: _Message, path: str, images: list[Image], past: bool) -> list[Message]:
    given = blocks(message.content, f"{path}.content", past=past)
    if isinstance(given, str):
        return [{"role": message.role, "content": given}]
    if message.role == "assistant":
        return [_assistant([read_block(raw, _SAID, path, past=True) for raw in given])]
    results: list[Message] = []
    parts: list[str | Image] = []
    for i, raw in enumerate(given):
        where = f"{path}.content[{i}]"
        block = read_block(raw, _GIVEN, where, past=past)
        if isinstance(block, _ToolResult):
            results.append(_result(block, where, images))
        else:
            parts.append(_part(block, where, images, past))
    # Templates want results directly behind the call, whatever the client put first.
    return results + ([{"role": message.role, "content": content(parts)}] if parts or not results else [])


def _assistant(given: list[Any]) -> Message:
    said = [b.text if isinstance(b, _Text) else b for b in given]
    message: Message = {"role": "assistant", "content": "".join(b for b in said if isinstance(b, str))}
    reasoning = "".join(b.thinking for b in given if isinstance(b, _Thinking))
    if reasoning:
        message["reasoning_content"] = reasoning
    calls = [tool_call(b.id, b.name, b.input) for b in given if isinstance(b, _ToolUse)]
    if calls:
        message["tool_calls"] = calls
    return message


def _result(block: _ToolResult, path: str, images: list[Image]) -> Message:
    """What a tool gave back has happened, also when it is the newest message."""
    found: Any = blocks(block.content, f"{path}.content", past=True)
    if isinstance(found, list):
        read = (read_block(raw, _SHOWN, path, past=True) for raw in found)
        found = content([_part(b, f"{path}.content[{i}]", images, True) for i, b in enumerate(read)])
    if block.is_error:
        found = f"Error: {found}" if isinstance(found, str) else [{"type": "text", "text": "Error:"}, *found]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": found}


def _part(block: Any, path: str, images: list[Image], past: bool) -> str | Image:
    if isinstance(block, str):
        return block
    if isinstance(block, _Text):
        return block.text
    if isinstance(block, _SearchResult):
        return "\n".join(t for t in (block.title, block.source, *(b.text for b in block.content)) if t)
    source = block.source
    if isinstance(block, _Image):
        if isinstance(source, _UrlSource):
            load = partial(image_from_uri, source.url, f"{path}.source.url")
        else:
            load = partial(image_from_base64, source.data, source.media_type, f"{path}.source.data")
        return picture(load, images, past=past)
    if isinstance(source, _TextSource):
        return f"{block.title}\n{source.data}" if block.title else source.data
    if past:
        return note({"type": "document", "title": block.title})
    raise bad(f"{path}: only text documents can be read; send the document's text.", path)


def _thinking(given: _ThinkingConfig | None) -> tuple[bool | None, int | None]:
    if given is None or given.type == "adaptive":
        return None, None
    budget = positive(given.budget_tokens, "thinking.budget_tokens")
    return given.type == "enabled", budget if given.type == "enabled" else None


def _choice(given: _Choice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    if given is None:
        return ToolChoice()
    parallel = not given.disable_parallel_tool_use
    if given.type == "tool":
        return tool_choice(None, given.name or "", tools, parallel, "tool_choice.name")
    return tool_choice("required" if given.type == "any" else given.type, None, tools, parallel)


def _format(request: _Count) -> Format | None:
    given = (request.output_config.format if request.output_config else None) or request.output_format
    if given is None:
        return None
    if given.type != "json_schema":
        raise bad(f"output_config.format.type: '{given.type}' is not json_schema.", "output_config.format.type")
    return schema_format(given.schema, "output_config.format.schema")

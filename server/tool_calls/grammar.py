"""Grammars that force a tool call: the family's own syntax around arguments that fit the tool's schema.

Marks that are one token of the vocabulary must be named as that token; elsewhere they are plain text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.errors import UsageError
from engine.sampling.structured_output import JSON_OPTIONS
from server.tool_calls.gemma4 import QUOTE
from server.tool_calls.tagged import ATEM, MINICPM, MINIMAX, QWEN_CODER, Syntax
from server.tool_calls.values import schema_types
from server.types import Tool

TokenId = Callable[[str], int | None]
"""Id of a text that is one added token, else None."""

_ANY_TEXT = r"/(?s:.)*/"


class Writer:
    """Collects the rules of one Lark grammar."""

    def __init__(self, token: TokenId) -> None:
        self._token = token
        self.rules: list[str] = []

    def known(self, text: str) -> bool:
        """Whether it is one token of the vocabulary."""
        return self._token(text) is not None

    def mark(self, text: str) -> str:
        """Literal text in which special marks are named by id."""
        found = self._token(text)
        return json.dumps(text) if found is None else f"<[{found}]>"

    def rule(self, body: str) -> str:
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name}: {body}")
        return name

    def text_up_to(self, end: str) -> str:
        """Any text and `end` after it."""
        found = self._token(end)
        if found is not None:
            return f"{self.rule(_ANY_TEXT)} <[{found}]>"
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name}[suffix={json.dumps(end)}]: {_ANY_TEXT}")
        return name

    def json(self, schema: Mapping[str, Any]) -> str:
        return self.rule("%json " + json.dumps({**schema, "x-guidance": JSON_OPTIONS}))

    def grammar(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self.rules]) + "\n"


def forced(family: str, tools: Sequence[Tool], token: TokenId) -> str:
    """A Lark grammar for exactly one call of one of `tools`."""
    writer = Writer(token)
    build = _FAMILIES.get(family)
    if build is None:
        raise UsageError("no call can be forced in this model's syntax; leave the choice to the model (auto).")
    return writer.grammar(" | ".join(build(writer, tool) for tool in tools))


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The tool's schema as a closed object: a forced call invents no parameters."""
    schema = dict(tool.parameters)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    schema.setdefault("additionalProperties", False)
    return schema


def _properties(tool: Tool) -> list[tuple[str, Mapping[str, Any], bool]]:
    """(name, schema, required) in the schema's order."""
    properties = tool.parameters.get("properties")
    required = set(tool.parameters.get("required") or ())
    if not isinstance(properties, Mapping):
        return []
    return [(n, s if isinstance(s, Mapping) else {}, n in required) for n, s in properties.items()]


def _with_definitions(tool: Tool, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter's schema that still finds the definitions at the root of its tool's."""
    shared = {k: tool.parameters[k] for k in ("$defs", "definitions") if k in tool.parameters}
    return {**shared, **schema}


def _hermes(w: Writer, tool: Tool) -> str:
    head = json.dumps('\n{"name": ' + json.dumps(tool.name) + ', "arguments": ')
    tail = json.dumps("}\n")
    return f"{w.mark('<tool_call>')} {head} {w.json(arguments_schema(tool))} {tail} {w.mark('</tool_call>')}"


def _strings(schema: Mapping[str, Any]) -> list[str] | None:
    """The texts that a string parameter may be, when the schema lists them."""
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    return [v for v in values if isinstance(v, str)] if values else None


def _markup(syntax: Syntax) -> Callable[[Writer, Tool], str]:
    line = "\n" if syntax.trim_newline else ""

    def parameter(w: Writer, tool: Tool, name: str, schema: Mapping[str, Any]) -> str:
        head = json.dumps(syntax.parameter[0] + name + syntax.parameter[1] + line)
        end = line + syntax.parameter_end + line
        if schema_types(schema) == {"string"}:
            texts = _strings(schema)
            if texts:
                return f"{head} ({' | '.join(json.dumps(t) for t in texts)}) {json.dumps(end)}"
            return f"{head} {w.text_up_to(end)}"
        return f"{head} {w.json(_with_definitions(tool, schema))} {json.dumps(end)}"

    def build(w: Writer, tool: Tool) -> str:
        parts: list[str] = []
        for name, schema, required in _properties(tool):
            rule = w.rule(parameter(w, tool, name, schema))
            parts.append(rule if required else f"{rule}?")
        head = json.dumps(line + syntax.call[0] + tool.name + syntax.call[1] + line)
        body = " ".join([head, *parts, json.dumps(syntax.call_end + line)])
        if syntax.wrapper is None:
            return body
        return f"{w.mark(syntax.wrapper[0])} {body} {w.mark(syntax.wrapper[1])}"

    return build


def _separated(w: Writer, parts: list[tuple[str, bool]]) -> str:
    """Required and optional parts in order with commas between them."""
    rest = ""
    following = ""
    for body, required in reversed(parts):
        rule = w.rule(body)
        more = f'"," {rule} {following}'.strip()
        first = f"{rule} {following}".strip()
        rest = w.rule(first) if required else w.rule(f"{first} | {rest}" if rest else f'{first} | ""')
        following = w.rule(more) if required else w.rule(f"{more} | {following}" if following else f'{more} | ""')
    return rest


def _gemma_value(w: Writer, tool: Tool, schema: Mapping[str, Any]) -> str:
    quote = w.mark(QUOTE)
    kinds = schema_types(schema)
    if kinds == {"string"}:
        texts = _strings(schema)
        if texts:
            return f"{quote} ({' | '.join(json.dumps(t) for t in texts)}) {quote}"
        return f"{quote} {w.text_up_to(QUOTE)}"
    if kinds == {"object"} and isinstance(schema.get("properties"), Mapping):
        inner = Tool("", "", {**_with_definitions(tool, {}), **schema})
        return _gemma_object(w, inner)
    if kinds == {"array"}:
        item = w.rule(_gemma_value(w, tool, schema.get("items") or {}))
        more = w.rule(f'"," {item}')
        return f'"[" ({item} {more}*)? "]"'
    if kinds and kinds <= {"integer", "number", "boolean", "null"}:
        return w.json(_with_definitions(tool, schema))
    return f"{quote} {w.text_up_to(QUOTE)}"


def _gemma_object(w: Writer, tool: Tool) -> str:
    parts = [(f"{json.dumps(n + ':')} {_gemma_value(w, tool, s)}", r) for n, s, r in _properties(tool)]
    return f'"{{" {_separated(w, parts)} "}}"'


def _gemma(w: Writer, tool: Tool) -> str:
    head = json.dumps(f"call:{tool.name}")
    return f"{w.mark('<|tool_call>')} {head} {_gemma_object(w, tool)} {w.mark('<tool_call|>')}"


def _lfm2(w: Writer, tool: Tool) -> str:
    parts = [(f"{json.dumps(n + '=')} {w.json(_with_definitions(tool, s))}", r) for n, s, r in _properties(tool)]
    head = json.dumps(f"[{tool.name}(")
    body = _separated(w, parts)
    return f"{w.mark('<|tool_call_start|>')} {head} {body} {json.dumps(')]')} {w.mark('<|tool_call_end|>')}"


def _mistral(w: Writer, tool: Tool) -> str:
    call = w.mark("[TOOL_CALLS]")
    schema = w.json(arguments_schema(tool))
    if w.known("[ARGS]"):
        return f"{call} {json.dumps(tool.name)} {w.mark('[ARGS]')} {schema}"
    head = json.dumps('[{"name": ' + json.dumps(tool.name) + ', "arguments": ')
    return f"{call} {head} {schema} {json.dumps('}]')}"


def _llama3(w: Writer, tool: Tool) -> str:
    head = json.dumps('{"name": ' + json.dumps(tool.name) + ', "parameters": ')
    return f"{head} {w.json(arguments_schema(tool))} {json.dumps('}')}"


def _kimi(w: Writer, tool: Tool) -> str:
    head = f"{w.mark('<|tool_calls_section_begin|>')} {w.mark('<|tool_call_begin|>')}"
    name = f"{json.dumps(f'functions.{tool.name}:0')} {w.mark('<|tool_call_argument_begin|>')}"
    tail = f"{w.mark('<|tool_call_end|>')} {w.mark('<|tool_calls_section_end|>')}"
    return f"{head} {name} {w.json(arguments_schema(tool))} {tail}"


def _gpt_oss(w: Writer, tool: Tool) -> str:
    head = f"{w.mark('<|channel|>')} {json.dumps(f'commentary to=functions.{tool.name} ')} {w.mark('<|constrain|>')}"
    return f'{head} "json" {w.mark("<|message|>")} {w.json(arguments_schema(tool))}'


_FAMILIES: dict[str, Callable[[Writer, Tool], str]] = {
    "hermes": _hermes,
    "qwen_coder": _markup(QWEN_CODER),
    "minicpm": _markup(MINICPM),
    "atem": _markup(ATEM),
    "gemma4": _gemma,
    "lfm2": _lfm2,
    "minimax": _markup(MINIMAX),
    "mistral": _mistral,
    "llama3": _llama3,
    "kimi": _kimi,
    "gpt_oss": _gpt_oss,
}


def taught(tools: Sequence[Tool]) -> str:
    """Instructions for a model whose template knows no tools, in the Hermes syntax."""
    lines = "\n".join(json.dumps(t.template(), ensure_ascii=False) for t in tools)
    return (
        "You can call functions. These are their signatures:\n<tools>\n" + lines + "\n</tools>\n"
        "To call one, answer with nothing but a JSON object in tags:\n"
        '<tool_call>\n{"name": <name>, "arguments": <arguments object>}\n</tool_call>'
    )

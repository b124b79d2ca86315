"""LFM2: `<|tool_call_start|>[f(a="x", n=3), g()]<|tool_call_end|>`, Python call syntax with literal arguments.

Positional arguments take their names from the schema's order.
"""

from __future__ import annotations

import ast
from collections.abc import Generator
from typing import Any

from server.tool_calls.base import NotACall, Reading, ToolParser
from server.tool_calls.values import coerce, dump, property_schema


class Lfm2Parser(ToolParser):
    name, signs = "lfm2", ("<|tool_call_start|>",)
    openers = ("<|tool_call_start|>",)

    def calls(self) -> Reading:
        yield from self._source.accept(self.openers[0])
        yield from self.listed(self._call)
        yield from self._source.accept("<|tool_call_end|>")

    def _call(self) -> Reading:
        source = self._source
        tool = self.begin((yield from source.name("(")))
        source.take(1)
        properties = tool.parameters.get("properties")
        order = list(properties) if isinstance(properties, dict) else []
        self.arguments("{")
        count = 0
        while True:
            yield from source.space()
            if (yield from source.accept(")")):
                break
            if count and not (yield from source.accept(",")):
                raise NotACall
            yield from source.space()
            if (yield from source.accept(")")):
                break
            text = yield from self._argument()
            head, equals, rest = text.partition("=")
            if equals and head.strip().isidentifier():
                name, literal = head.strip(), rest
            elif count < len(order):
                name, literal = order[count], text
            else:
                raise NotACall
            self.arguments(("" if not count else ", ") + dump(name) + ": " + dump(self._literal(tool, name, literal)))
            count += 1
        self.arguments("}")
        self.end()

    def _literal(self, tool: Any, name: str, text: str) -> Any:
        try:
            value = ast.literal_eval(text.strip())
            dump(value)
        except (ValueError, SyntaxError, TypeError, MemoryError):
            return coerce(text.strip(), property_schema(tool, name))
        return value

    def _argument(self) -> Generator[None, None, str]:
        """Text up to the comma or bracket that ends this argument; brackets and quotes inside are skipped."""
        source, size, depth, quote = self._source, 0, 0, ""
        while True:
            while size >= len(source.text):
                if not (yield from source.more()):
                    raise NotACall
            char = source.text[size]
            if quote:
                if char == "\\":
                    size += 1
                elif char == quote:
                    quote = ""
            elif char in "\"'":
                quote = char
            elif char in "([{":
                depth += 1
            elif char in ")]}":
                if not depth:
                    return source.take(size)
                depth -= 1
            elif char == "," and not depth:
                return source.take(size)
            size += 1

"""Gemma 4: `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:3,list:[..]}<tool_call|>`; values nest, keys are bare."""

from __future__ import annotations

from functools import partial

from server.tool_calls.base import NotACall, Reading, ToolParser, partial_tail
from server.tool_calls.values import coerce, dump, property_schema, quoted

QUOTE = '<|"|>'


class Gemma4Parser(ToolParser):
    name, signs = "gemma4", ("<|tool_call>",)
    openers = ("<|tool_call>",)

    def calls(self) -> Reading:
        source = self._source
        yield from source.accept("<|tool_call>")
        while True:
            yield from source.space()
            if not (yield from source.accept("call:")):
                raise NotACall
            tool = self.begin((yield from source.name("{")))
            yield from self._object(partial(property_schema, tool))
            self.end()
            source.mark()
            yield from source.space()
            if not ((yield from source.accept(",")) or (yield from source.at("call:"))):
                break
        yield from source.accept("<tool_call|>")

    def _object(self, schema_of: object) -> Reading:
        source = self._source
        find = schema_of if callable(schema_of) else (lambda _: None)
        source.take(1)
        self.arguments("{")
        first = True
        while True:
            yield from source.space()
            if (yield from source.accept("}")):
                break
            if not first and not (yield from source.accept(",")):
                raise NotACall
            yield from source.space()
            if (yield from source.accept(QUOTE)):
                key = yield from source.until(QUOTE)
                source.take(len(QUOTE))
                yield from source.space()
            else:
                key = yield from source.name(":")
            if not (yield from source.accept(":")):
                raise NotACall
            self.arguments(("" if first else ", ") + dump(key) + ": ")
            first = False
            yield from self._value(find(key))
        self.arguments("}")

    def _value(self, schema: object) -> Reading:
        source = self._source
        yield from source.space()
        char = yield from source.peek()
        if char == "{":
            properties = schema.get("properties") if isinstance(schema, dict) else None
            yield from self._object(properties.get if isinstance(properties, dict) else None)
        elif char == "[":
            yield from self._array(schema.get("items") if isinstance(schema, dict) else None)
        elif (yield from source.accept(QUOTE)):
            yield from self._string()
        else:
            text = (yield from source.until(",", "}", "]")).strip()
            self.arguments(dump(coerce(text, schema if isinstance(schema, dict) else None)))

    def _array(self, items: object) -> Reading:
        source = self._source
        source.take(1)
        self.arguments("[")
        first = True
        while True:
            yield from source.space()
            if (yield from source.accept("]")):
                break
            if not first:
                if not (yield from source.accept(",")):
                    raise NotACall
                self.arguments(", ")
            first = False
            yield from self._value(items)
        self.arguments("]")

    def _string(self) -> Reading:
        source = self._source
        self.arguments('"')
        while not (yield from source.at(QUOTE)):
            found = source.text.find(QUOTE)
            size = found if found >= 0 else len(source.text) - partial_tail(source.text, (QUOTE,))
            self.arguments(quoted(source.take(size)))
            if found < 0 and not (yield from source.more()):
                raise NotACall
        source.take(len(QUOTE))
        self.arguments('"')

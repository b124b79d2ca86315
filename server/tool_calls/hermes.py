"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one object or a list in each tag."""

from __future__ import annotations

import json
from collections.abc import Generator

from engine.chat.foreign_text import read_json
from server.tool_calls.base import NotACall, Reading, Source, ToolParser
from server.tool_calls.values import dump


def json_string(source: Source) -> Generator[None, None, str]:
    """A JSON string with its quotes."""
    if not (yield from source.accept('"')):
        raise NotACall
    parts = ['"']
    while True:
        step = yield from string_step(source)
        parts.append(step)
        if step == '"':
            return "".join(parts)


def string_step(source: Source) -> Generator[None, None, str]:
    """The next safe stretch inside a JSON string: plain characters, one escape, or the closing quote."""
    first = yield from source.peek()
    if not first:
        raise NotACall
    if first == '"':
        return source.take(1)
    if first == "\\":
        while len(source.text) < 2:
            if not (yield from source.more()):
                raise NotACall
        if source.text[1] == "u":
            while len(source.text) < 6:
                if not (yield from source.more()):
                    raise NotACall
            return source.take(6)
        return source.take(2)
    size = 0
    while size < len(source.text) and source.text[size] not in '"\\':
        size += 1
    # A raw line break inside a string is what small models write for \n; JSON does not allow it.
    return "".join(c if c >= " " else json.dumps(c)[1:-1] for c in source.take(size))


class HermesParser(ToolParser):
    name, signs = "hermes", ("<tool_call>",)
    openers = ("<tool_call>",)
    closer = "</tool_call>"

    def calls(self) -> Reading:
        yield from self._source.accept(self.openers[0])
        yield from self.listed(self._call)
        yield from self._source.accept(self.closer)

    def _call(self) -> Reading:
        source = self._source
        if not (yield from source.accept("{")):
            raise NotACall
        name, kept, sent = "", "", False
        while True:
            yield from source.space()
            if (yield from source.accept("}")):
                break
            yield from source.accept(",")
            yield from source.space()
            key = read_json((yield from json_string(source)))
            yield from source.space()
            if not (yield from source.accept(":")):
                raise NotACall
            yield from source.space()
            if key == "name":
                name = read_json((yield from json_string(source)))
                self.begin(name)
            elif key in ("arguments", "parameters") and not sent:
                kept = yield from self._arguments(live=bool(name))
                sent = True
            else:
                yield from self._value(None)
        if not name:
            raise NotACall
        self.arguments(kept or ("" if sent else "{}"))
        self.end()

    def _arguments(self, *, live: bool) -> Generator[None, None, str]:
        """The arguments' JSON: streamed when the name is known, else returned. A string that holds JSON is opened."""
        if (yield from self._source.at('"')):
            text = read_json((yield from json_string(self._source)))
            try:
                return dump(read_json(text))
            except ValueError:
                return dump(text)
        if live:
            yield from self._value(self.arguments)
            return ""
        parts: list[str] = []
        yield from self._value(parts.append)
        return "".join(parts)

    def _value(self, sink: object) -> Reading:
        """One JSON value of any kind, handed on as it comes."""
        give = sink if callable(sink) else (lambda _: None)
        source, depth = self._source, 0
        while True:
            char = yield from source.peek()
            if not char:
                raise NotACall
            if char == '"':
                give(source.take(1))
                while (step := (yield from string_step(source))) != '"':
                    give(step)
                give('"')
            elif char in "{[":
                give(source.take(1))
                depth += 1
                continue
            elif char in "}]":
                if not depth:
                    return
                give(source.take(1))
                depth -= 1
            elif char == "," and not depth:
                return
            else:
                give(source.take(1))
                continue
            if not depth:
                return

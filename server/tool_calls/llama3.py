"""Llama 3: `<|python_tag|>{"name": ..., "parameters": {...}}`, or the object alone as the whole answer."""

from __future__ import annotations

from server.tool_calls.base import Reading
from server.tool_calls.hermes import HermesParser


class Llama3Parser(HermesParser):
    name, signs = "llama3", ("<|python_tag|>", 'Respond in the format {"name": function name')
    openers = ("<|python_tag|>", '{"name":', '{"type": "function"', '{"type":"function"')

    def calls(self) -> Reading:
        source = self._source
        yield from source.accept(self.openers[0])
        while True:
            yield from source.space()
            yield from self._call()
            source.mark()
            yield from source.space()
            if not (yield from source.accept(";")):
                return

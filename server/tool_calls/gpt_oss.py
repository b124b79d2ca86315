"""gpt-oss: a message to `functions.NAME` whose text is the arguments' JSON. The splitter hands on such a header."""

from __future__ import annotations

from server.tool_calls.base import Reading
from server.tool_calls.hermes import HermesParser


class GptOssParser(HermesParser):
    name, signs = "gpt_oss", ("to=functions.",)
    openers = ("to=functions.",)

    def calls(self) -> Reading:
        source = self._source
        yield from source.accept(self.openers[0])
        name = yield from source.name("<|message|>")
        yield from source.accept("<|message|>")
        self.begin(name.split()[0] if name else "")
        yield from source.space()
        yield from self._value(self.arguments)
        self.end()

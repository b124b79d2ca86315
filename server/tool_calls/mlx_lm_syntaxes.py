"""Call syntaxes that mlx-lm reads: Mistral, GLM, Kimi, LongCat, FunctionGemma.

Their parsers take a whole call, so that its arguments come in one piece. Knows of a syntax only its marks and its
parser's module; `mlx_lm` is imported when a model speaks one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

from server.tool_calls.base import NotACall, Reading, ToolParser
from server.tool_calls.values import dump


class WholeCallParser(ToolParser):
    """One call or several between two marks, or behind one up to the end of the answer."""

    module: ClassVar[str]
    closer: ClassVar[str] = ""

    def calls(self) -> Reading:
        source = self._source
        yield from source.accept(self.openers[0])
        if self.closer:
            text = yield from source.until(self.closer)
            yield from source.accept(self.closer)
        else:
            while (yield from source.more()):
                pass
            text = source.take(len(source.text))
        for name, arguments in self._parsed(text):
            self.begin(name)
            self.arguments(dump(arguments))
            self.end()
            source.mark()

    def _parsed(self, text: str) -> list[tuple[str, Any]]:
        parser: Any = importlib.import_module(f"mlx_lm.tool_parsers.{self.module}")
        try:
            found = parser.parse_tool_call(text, [t.template() for t in self.tools.values()])
        except Exception as error:  # a stranger's parser over a model's text: whatever it raises, this is no call
            raise NotACall from error
        calls = found if isinstance(found, list) else [found]
        if not all(isinstance(c, Mapping) and c.get("name") in self.tools for c in calls):
            raise NotACall
        return [(c["name"], c.get("arguments") or {}) for c in calls]


class MistralParser(WholeCallParser):
    name, signs = "mistral", ("[TOOL_CALLS]",)
    module, openers = "mistral", ("[TOOL_CALLS]",)


class GlmParser(WholeCallParser):
    name, signs = "glm", ("<arg_key>",)
    module, openers, closer = "glm47", ("<tool_call>",), "</tool_call>"


class KimiParser(WholeCallParser):
    name, signs = "kimi", ("<|tool_calls_section_begin|>",)
    module, openers, closer = "kimi_k2", ("<|tool_calls_section_begin|>",), "<|tool_calls_section_end|>"


class LongCatParser(WholeCallParser):
    name, signs = "longcat", ("<longcat_tool_call>",)
    module, openers, closer = "longcat", ("<longcat_tool_call>",), "</longcat_tool_call>"


class FunctionGemmaParser(WholeCallParser):
    name, signs = "function_gemma", ("<start_function_call>",)
    module, openers, closer = "function_gemma", ("<start_function_call>",), "<end_function_call>"

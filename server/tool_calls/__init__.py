"""Tool-call syntaxes, one file a family, and the choice of the family from the model's chat template."""

from __future__ import annotations

from server.tool_calls.base import ToolParser
from server.tool_calls.gemma4 import Gemma4Parser
from server.tool_calls.gpt_oss import GptOssParser
from server.tool_calls.hermes import HermesParser
from server.tool_calls.lfm2 import Lfm2Parser
from server.tool_calls.llama3 import Llama3Parser
from server.tool_calls.mlx_lm_syntaxes import FunctionGemmaParser, GlmParser, KimiParser, LongCatParser, MistralParser
from server.tool_calls.tagged import AtemParser, MiniCpmParser, MiniMaxParser, QwenCoderParser

PARSERS: tuple[type[ToolParser], ...] = (
    Gemma4Parser,
    AtemParser,
    Lfm2Parser,
    QwenCoderParser,
    MiniCpmParser,
    MiniMaxParser,
    KimiParser,
    GlmParser,
    LongCatParser,
    FunctionGemmaParser,
    MistralParser,
    GptOssParser,
    Llama3Parser,
    HermesParser,
)
"""The first whose sign a template holds is its family's: the more particular marks come first."""
FAMILIES: dict[str, type[ToolParser]] = {parser.name: parser for parser in PARSERS}


def family_of(template: str) -> str:
    """The syntax that a chat template teaches its model; Hermes, the most common one, when it teaches none."""
    return _taught(template) or HermesParser.name


def unknown_syntax(template: str) -> bool:
    """Whether a template writes tools in a way that none of the families reads."""
    return "tools" in template and _taught(template) is None


def _taught(template: str) -> str | None:
    return next((parser.name for parser in PARSERS if any(sign in template for sign in parser.signs)), None)

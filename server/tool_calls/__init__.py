"""Tool-call syntaxes, one file a family, and the choice of the family from the model's chat template."""

from __future__ import annotations

from server.tool_calls.base import ToolParser
from server.tool_calls.gemma4 import Gemma4Parser
from server.tool_calls.hermes import HermesParser
from server.tool_calls.lfm2 import Lfm2Parser
from server.tool_calls.tagged import AtemParser, MiniCpmParser, QwenCoderParser

FAMILIES: dict[str, type[ToolParser]] = {
    "hermes": HermesParser,
    "qwen_coder": QwenCoderParser,
    "gemma4": Gemma4Parser,
    "minicpm": MiniCpmParser,
    "atem": AtemParser,
    "lfm2": Lfm2Parser,
}

_SIGNS: tuple[tuple[str, str], ...] = (
    ("<|tool_call>", "gemma4"),
    ("<atem:", "atem"),
    ("<|tool_call_start|>", "lfm2"),
    ("<function=", "qwen_coder"),
    ('<function name="', "minicpm"),
    ("<function name=", "minicpm"),
    ("<tool_call>", "hermes"),
)
"""First match wins: the more particular marks come first."""


def family_of(template: str) -> str:
    """The syntax that a chat template teaches its model; Hermes, the most common one, when it teaches none."""
    return next((family for sign, family in _SIGNS if sign in template), "hermes")

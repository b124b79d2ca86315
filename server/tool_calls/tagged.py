"""Calls in tags with one tag a parameter: Qwen3-Coder's XML, MiniCPM, MiniMax and muse's ATEM.

Values are raw text; the tool's schema gives them their type. String parameters stream while they come. A value may hold
its own closing tag: the tag counts only where another tag may follow.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from server.tool_calls.base import NotACall, Reading, ToolParser, partial_tail
from server.tool_calls.values import coerce, dump, property_schema, quoted, schema_types


@dataclass(frozen=True, slots=True)
class Syntax:
    """The tags of one family. A name sits between `call[0]` and `call[1]`, and likewise for parameters."""

    call: tuple[str, str]
    call_end: str
    parameter: tuple[str, str]
    parameter_end: str
    wrapper: tuple[str, str] | None = None
    trim_newline: bool = False
    """The template writes a line break on both sides of a value."""
    cdata: bool = False

    @property
    def openers(self) -> tuple[str, ...]:
        return ((self.wrapper[0],) if self.wrapper else ()) + (self.call[0],)


QWEN_CODER = Syntax(
    call=("<function=", ">"),
    call_end="</function>",
    parameter=("<parameter=", ">"),
    parameter_end="</parameter>",
    wrapper=("<tool_call>", "</tool_call>"),
    trim_newline=True,
)
MINICPM = Syntax(
    call=('<function name="', '">'),
    call_end="</function>",
    parameter=('<param name="', '">'),
    parameter_end="</param>",
    cdata=True,
)
ATEM = Syntax(
    call=('<atem:invoke name="', '">'),
    call_end="</atem:invoke>",
    parameter=('<atem:parameter name="', '">'),
    parameter_end="</atem:parameter>",
    wrapper=("<atem:function_calls>", "</atem:function_calls>"),
)

MINIMAX = Syntax(
    call=('<invoke name="', '">'),
    call_end="</invoke>",
    parameter=('<parameter name="', '">'),
    parameter_end="</parameter>",
    wrapper=("<minimax:tool_call>", "</minimax:tool_call>"),
)


class MarkupParser(ToolParser):
    syntax: Syntax

    def calls(self) -> Reading:
        source, syntax = self._source, self.syntax
        wrapped = syntax.wrapper is not None and (yield from source.accept(syntax.wrapper[0]))
        count = 0
        while True:
            yield from source.space()
            if not (yield from source.accept(syntax.call[0])):
                break
            yield from self._call()
            count += 1
            source.mark()
        if not count:
            raise NotACall
        if syntax.wrapper and wrapped:
            yield from source.accept(syntax.wrapper[1])

    def _call(self) -> Reading:
        source, syntax = self._source, self.syntax
        tool = self.begin((yield from source.name(syntax.call[1])))
        source.take(len(syntax.call[1]))
        self.arguments("{")
        first = True
        while True:
            yield from source.space()
            if (yield from source.accept(syntax.call_end)):
                break
            if not (yield from source.accept(syntax.parameter[0])):
                raise NotACall
            name = yield from source.name(syntax.parameter[1])
            source.take(len(syntax.parameter[1]))
            self.arguments(("" if first else ", ") + dump(name) + ": ")
            first = False
            schema = property_schema(tool, name)
            if schema is not None and schema_types(schema) == {"string"}:
                self.arguments('"')
                yield from self._text(self._live)
                self.arguments('"')
            else:
                parts: list[str] = []
                yield from self._text(parts.append)
                self.arguments(dump(coerce("".join(parts), schema)))
        self.arguments("}")
        self.end()

    def _live(self, text: str) -> None:
        self.arguments(quoted(text))

    def _text(self, give: object) -> Reading:
        """A parameter's raw text, handed on as far as it is certain, up to and with its closing tag."""
        emit = give if callable(give) else (lambda _: None)
        source, syntax = self._source, self.syntax
        if syntax.cdata and (yield from source.accept("<![CDATA[")):
            emit((yield from source.until("]]>")))
            source.take(3)
            yield from source.space()
            yield from source.accept(syntax.parameter_end)
            return
        if syntax.trim_newline:
            yield from source.accept("\n")
        closers = (("\n" + syntax.parameter_end,) if syntax.trim_newline else ()) + (syntax.parameter_end,)
        while True:
            hits = [(at, -len(w), w) for w in closers if (at := source.text.find(w)) >= 0]
            if hits:
                at, _, word = min(hits)
                emit(source.take(at))
                if (yield from self._closes(word)):
                    source.take(len(word))
                    return
                emit(source.take(len(word)))
                continue
            emit(source.take(len(source.text) - partial_tail(source.text, closers)))
            if not (yield from source.more()):
                raise NotACall

    def _closes(self, word: str) -> Generator[None, None, bool]:
        """Whether the closing tag at the front is followed by what may follow one, or by the end."""
        source, syntax = self._source, self.syntax
        followers = (syntax.parameter[0], syntax.call_end)
        while True:
            rest = source.text[len(word) :].lstrip()
            if any(rest.startswith(f) for f in followers):
                return True
            if rest and not any(f.startswith(rest) for f in followers):
                return False
            if not (yield from source.more()):
                return not rest


class QwenCoderParser(MarkupParser):
    name, signs = "qwen_coder", ("<function=",)
    syntax = QWEN_CODER
    openers = QWEN_CODER.openers


class MiniCpmParser(MarkupParser):
    name, signs = "minicpm", ("<function name=",)
    syntax = MINICPM
    openers = MINICPM.openers


class AtemParser(MarkupParser):
    name, signs = "atem", ("<atem:",)
    syntax = ATEM
    openers = ATEM.openers


class MiniMaxParser(MarkupParser):
    name, signs = "minimax", ("<minimax:tool_call>",)
    syntax = MINIMAX
    openers = MINIMAX.openers

"""Markdown blocks to lines. Pure: tokens, the source with its provenance and a width in; lines out.

Reference definitions and raw HTML are off, so no block depends on another and each can be rendered alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tui.markdown.highlight import spans
from tui.markdown.lines import BLANK, Flow, Line, Run, prefixed
from tui.markdown.source_map import Aligner
from tui.markdown.table import Cell, table_lines

INDENT = 2
"""Columns before code."""


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough. Escapes keep their markup, so that they can be aligned."""
    md = MarkdownIt("commonmark", {"html": False})
    return md.enable(["table", "strikethrough"]).disable(["reference", "text_join", "html_block", "html_inline"])


@dataclass(frozen=True, slots=True)
class Source:
    """The text that tokens were parsed from, with provenance per character and the start of each line."""

    text: str
    prov: bytes
    starts: tuple[int, ...]

    @classmethod
    def of(cls, text: str, prov: bytes) -> Source:
        starts = [0]
        at = text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = text.find("\n", at + 1)
        return cls(text, prov, (*starts, len(text) + 1))

    def offset(self, line: int) -> int:
        return min(self.starts[min(line, len(self.starts) - 1)], len(self.text))

    def line(self, line: int) -> str:
        return self.text[self.offset(line) : self.offset(line + 1)]

    def blank(self, line: int) -> bool:
        """Whether a line is empty but for container markers."""
        return 0 <= line < len(self.starts) - 1 and not self.line(line).strip(" \t\n>")


@dataclass(frozen=True, slots=True)
class ListStart:
    """Where a list goes on whose earlier items were rendered before."""

    ordinal: int
    """Number of the next item."""


def children(tokens: Sequence[Token], start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of each sibling block among tokens[start:stop]."""
    i = start
    stop = len(tokens) if stop is None else stop
    while i < stop:
        depth, j = tokens[i].nesting, i + 1
        while depth > 0:
            depth += tokens[j].nesting
            j += 1
        yield i, j
        i = j


class Renderer:
    """Renders the blocks of one parse. `final` is False while the text may still grow: code is then left plain."""

    def __init__(self, tokens: Sequence[Token], source: Source, width: int, final: bool = True) -> None:
        self._tokens = tokens
        self._source = source
        self._width = width
        self._final = final

    def blocks(
        self, first: int, last: int, width: int | None = None, list_start: ListStart | None = None
    ) -> list[Line]:
        """Siblings tokens[first:last], a blank row between them where the source has one (always at top level)."""
        width = self._width if width is None else width
        lines: list[Line] = []
        for n, (i, j) in enumerate(children(self._tokens, first, last)):
            token = self._tokens[i]
            if n and (token.level == 0 or self._source.blank((token.map or [0])[0] - 1)):
                lines.append(BLANK)
            lines += self.block(i, j, width, list_start if n == 0 else None)
        return lines

    def block(self, i: int, j: int, width: int, list_start: ListStart | None = None) -> list[Line]:
        token = self._tokens[i]
        match token.type:
            case "paragraph_open" | "heading_open":
                style = token.tag if token.type == "heading_open" else ""
                return self._inline(self._tokens[i + 1], style).wrapped(width)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(i, j, width, list_start)
            case "blockquote_open":
                bar = Run("▌ ", "quote-bar")
                return prefixed(self.blocks(i + 1, j - 1, max(1, width - 2)) or [BLANK], bar, bar)
            case "fence" | "code_block":
                return self._code(token, width)
            case "hr":
                return [Line((Run("─" * width, "rule"),))]
            case "table_open":
                return table_lines(self._rows(i, j), width)
            case _:
                flow = Flow()
                flow.add(token.content, "")
                return flow.wrapped(width)

    def _list(self, i: int, j: int, width: int, start: ListStart | None) -> list[Line]:
        ordered = self._tokens[i].type == "ordered_list_open"
        ordinal = start.ordinal if start else int(self._tokens[i].attrGet("start") or 1) if ordered else 1
        lines: list[Line] = []
        for n, (a, b) in enumerate(children(self._tokens, i + 1, j - 1)):
            first = (self._tokens[a].map or [0])[0]
            if (n or start) and self._source.blank(first - 1):
                lines.append(BLANK)
            mark = f"{ordinal + n}. " if ordered else "• "
            style = "marker" if ordered else "bullet"
            inner = self.blocks(a + 1, b - 1, max(1, width - len(mark))) or [BLANK]
            lines += prefixed(inner, Run(mark, style), Run(" " * len(mark), style))
        return lines

    def _code(self, token: Token, width: int) -> list[Line]:
        first, last = token.map or [0, 0]
        language = token.info.split()[0] if token.info.strip() else ""
        code = token.content
        lines = [code_label(language, width)] if token.type == "fence" else []
        rows = code.removesuffix("\n").split("\n") if code else []
        at = first + (token.type == "fence")
        provs = [self._code_prov(row, at + n, last) for n, row in enumerate(rows)]
        parts = spans("\n".join(rows), language if self._final else "")
        return lines + code_lines(rows, provs, parts, width)

    def _code_prov(self, row: str, line: int, last: int) -> bytes:
        if line >= last:
            return bytes(len(row))
        text, start = self._source.line(line).rstrip("\n"), self._source.offset(line)
        if text.endswith(row):
            at = start + len(text) - len(row)
            return self._source.prov[at : at + len(row)]
        return Aligner(self._source.text, self._source.prov, start, start + len(text)).take(row)

    def _rows(self, i: int, j: int) -> list[list[Cell]]:
        rows: list[list[Cell]] = []
        aligner: Aligner | None = None
        for k in range(i, j):
            token = self._tokens[k]
            if token.type == "tr_open":
                line = (token.map or [0])[0]
                start = self._source.offset(line)
                aligner = Aligner(self._source.text, self._source.prov, start, self._source.offset(line + 1))
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                css = str(token.attrGet("style") or "")
                side = css.removeprefix("text-align:") or "left"
                head = "th" if token.type == "th_open" else ""
                rows[-1].append(Cell(self._inline(self._tokens[k + 1], head, aligner), side))
        return rows

    def _inline(self, token: Token, style: str, aligner: Aligner | None = None) -> Flow:
        first, last = token.map or [0, 0]
        if aligner is None:
            source = self._source
            aligner = Aligner(source.text, source.prov, source.offset(first), source.offset(last))
        return inline_flow(token.children or [], style, aligner)


_MARKS = {"strong": "strong", "em": "em", "s": "strike", "link": "link"}


def inline_flow(tokens: Sequence[Token], base: str, aligner: Aligner) -> Flow:
    """Inline tokens as styled text."""
    flow = Flow()
    stack = [base] if base else []
    href = ""
    label = 0
    for token in tokens:
        name, _, edge = token.type.rpartition("_")
        if edge == "open" and name in _MARKS:
            stack.append(_MARKS[name])
            if name == "link":
                href, label = str(token.attrGet("href") or ""), len(flow.text)
            continue
        if edge == "close" and name in _MARKS:
            stack.pop()
            if name == "link" and token.markup != "autolink":
                _destination(flow, href, flow.text[label:], " ".join([*stack, "url"]), aligner)
            continue
        style = " ".join(stack)
        match token.type:
            case "softbreak" | "hardbreak":
                flow.add("\n", style, aligner.take("\n"))
            case "code_inline":
                flow.add(token.content, " ".join([*stack, "code"]), aligner.take(token.content))
            case "text_special":
                flow.add(token.content, style, aligner.take_as(token.content, token.markup))
            case "image":
                shown = token.content or "image"
                flow.add("▣ ", "url")
                flow.add(shown, " ".join([*stack, "link"]), aligner.take(shown))
                _destination(flow, str(token.attrGet("src") or ""), shown, " ".join([*stack, "url"]), aligner)
            case _:
                flow.add(token.content, style, aligner.take(token.content))
    return flow


def _destination(flow: Flow, href: str, label: str, style: str, aligner: Aligner) -> None:
    """Show where a link leads, unless its text says so already. The terminal makes it clickable if it wants to:
    text of a model never becomes a hyperlink sequence."""
    aligner.skip("](")
    if href and href != label:
        flow.add(" (", style)
        flow.add(href, style, aligner.take(href))
        flow.add(")", style)
    else:
        aligner.take(href)


def code_label(language: str, width: int) -> Line:
    """The row over a fenced block."""
    flow = Flow()
    flow.add(" " * INDENT + (language or "code"), "code-label")
    return flow.chopped(width)[0]


def code_lines(
    rows: Sequence[str], provs: Sequence[bytes], parts: Sequence[tuple[int, int, str]], width: int
) -> list[Line]:
    """Rows of code with the syntax classes `parts` of the joined text."""
    lines: list[Line] = []
    pad = Run(" " * INDENT, "pre")
    k = start = 0
    for row, prov in zip(rows, provs, strict=True):
        flow, end = Flow(), start + len(row)
        while k < len(parts) and parts[k][0] < end:
            a, b, name = max(parts[k][0], start), min(parts[k][1], end), parts[k][2]
            flow.add(row[a - start : b - start], f"pre {name}".rstrip(), prov[a - start : b - start])
            if parts[k][1] > end:
                break
            k += 1
        while k < len(parts) and parts[k][1] <= end:
            k += 1
        tab = flow.chopped(max(1, width - INDENT))
        lines += prefixed(tab, pad, pad)
        start = end + 1
    return lines

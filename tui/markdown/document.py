"""A growing Markdown text as lines. What it shows depends on the text alone, never on how it was cut into pieces.

Closed blocks are rendered once and kept; only the open one is rendered again. A fence shows plain until it closes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tui.markdown.lines import BLANK, Flow, Line
from tui.markdown.render import Renderer, Source, children, code_label, code_lines, parser
from tui.markdown.splitter import Closed, Splitter, forming, line_offsets

_DROPPED = str.maketrans("", "", "\r\0")


@dataclass(frozen=True, slots=True)
class Block:
    """A closed stretch: its source range and its rows, for copying and for the block cursor."""

    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a cursor over blocks stops at: a stretch of source and its rows."""

    start: int
    end: int
    first: int
    last: int


class Document:
    """Feed text with its class, read `lines`."""

    def __init__(self, width: int = 80) -> None:
        self.text = ""
        self.prov = bytearray()
        self.width = max(1, width)
        self.finished = False
        self.blocks: list[Block] = []
        self.changed = 0
        """First row that differs since the last call of `settle`."""
        self._splitter = Splitter()
        self._closed: list[Line] = []
        self._open: list[Line] = []
        self._stale = False
        self._fence_rows = 0
        """Rows of the open fence that are complete; they stand at the front of `_open`."""
        self._fence_at = 0
        self._parts: tuple[tuple[int, int, bool], list[Part]] = ((-1, 0, False), [])

    def feed(self, text: str, code: int) -> None:
        """Append `text`, all of it of class `code`."""
        text = text.translate(_DROPPED)
        if text and not self.finished:
            self.text += text
            self.prov += bytes((code,)) * len(text)
            self._stale = True

    def finish(self) -> None:
        """No more text will come: what is open is final now."""
        if not self.finished:
            self.finished = self._stale = True

    def resize(self, width: int) -> None:
        """Render everything anew for another width."""
        if width != self.width:
            self.width = max(1, width)
            self._splitter = Splitter()
            self._closed, self._open, self.blocks = [], [], []
            self._fence_rows = self.changed = 0
            self._stale = True

    @property
    def lines(self) -> list[Line]:
        """All rows; settles first."""
        self.settle()
        return self._closed + self._open

    def __len__(self) -> int:
        return len(self._closed) + len(self._open)

    def line(self, y: int) -> Line:
        """Row y of what was last settled."""
        n = len(self._closed)
        if y < n:
            return self._closed[y]
        return self._open[y - n] if y - n < len(self._open) else BLANK

    def parts(self) -> list[Part]:
        """Top-level blocks from top to bottom, found in the whole text: how it was cut makes no difference."""
        key = (len(self.text), self.width, self.finished)
        if self._parts[0] != key:
            self._parts = key, self._find_parts()
        return self._parts[1]

    def _find_parts(self) -> list[Part]:
        tokens = parser().parse(self.text)
        renderer = Renderer(tokens, self._source(0, len(self.text)), self.width, final=self.finished)
        starts = [*line_offsets(self.text, 0, len(self.text)), len(self.text)]
        found: list[Part] = []
        row = 0
        for i, j in children(tokens):
            first, last = tokens[i].map or (0, 0)
            height = len(renderer.block(i, j, self.width))
            found.append(Part(starts[first], starts[min(last, len(starts) - 1)], row, row + height))
            row += height + 1
        return [part for part in found if part.first < min(part.last, len(self))]

    def settle(self) -> int:
        """Bring the rows up to date; returns the first row that may have changed."""
        if not self._stale:
            return len(self)
        self._stale = False
        before = len(self._closed)
        for closed in self._splitter.advance(self.text):
            self._fence_rows = 0
            self._append(closed)
        keep = self._fence_rows if len(self._closed) == before else 0
        self._render_open()
        if self.finished:
            self._closed += self._open
            self._open = []
        return before + keep

    def _append(self, closed: Closed) -> None:
        first = len(self._closed)
        if self._closed and not closed.joined:
            self._closed.append(BLANK)
        source = self._source(closed.base, closed.parsed)
        renderer = Renderer(closed.tokens, source, self.width)
        if closed.joined and self._blank_before(closed.start):
            self._closed.append(BLANK)
        start = closed.list_start if closed.joined else None
        self._closed += renderer.blocks(closed.first, closed.last, list_start=start)
        self.blocks.append(Block(closed.start, closed.end, first, len(self._closed)))

    def _render_open(self) -> None:
        splitter = self._splitter
        if splitter.fence is not None and not self.finished:
            self._render_fence()
            return
        self._fence_rows = 0
        end = len(self.text)
        last = self.text.rfind("\n") + 1
        if not self.finished and forming(self.text[last:]):
            end = last
        base = splitter.base
        tokens = parser().parse(self.text[base:end])
        self._open = []
        if not tokens:
            return
        joined = splitter.list_start is not None
        if self._closed and (not joined or self._blank_before(base)):
            self._open.append(BLANK)
        renderer = Renderer(tokens, self._source(base, end), self.width, final=self.finished)
        first = len(self._closed)
        self._open += renderer.blocks(0, len(tokens), list_start=splitter.list_start)
        if self.finished:
            self.blocks.append(Block(base, len(self.text), first, first + len(self._open)))

    def _render_fence(self) -> None:
        fence = self._splitter.fence
        assert fence is not None
        if not self._fence_rows:
            head = [BLANK] if self._closed else []
            self._open = [*head, code_label(fence.language, self.width)]
            self._fence_rows, self._fence_at = len(self._open), fence.body
        del self._open[self._fence_rows :]
        end = self.text.find("\n", self._fence_at)
        while end >= 0:
            self._open += self._fence_line(self._fence_at, end)
            self._fence_at = end + 1
            self._fence_rows = len(self._open)
            end = self.text.find("\n", self._fence_at)
        rest = self.text[self._fence_at :]
        bare = rest.strip(" ")
        if rest and not (bare and not bare.strip(fence.mark[0])):
            self._open += self._fence_line(self._fence_at, len(self.text))

    def _fence_line(self, start: int, end: int) -> list[Line]:
        fence = self._splitter.fence
        assert fence is not None
        row = self.text[start:end]
        start += min(fence.indent, len(row) - len(row.lstrip(" ")))
        row = self.text[start:end]
        return code_lines([row], [bytes(self.prov[start:end])], [(0, len(row), "")], self.width)

    def _blank_before(self, offset: int) -> bool:
        end = offset - 1
        start = self.text.rfind("\n", 0, end) + 1
        return offset > 1 and not self.text[start:end].strip(" \t>")

    def _source(self, start: int, end: int) -> Source:
        return Source.of(self.text[start:end], bytes(self.prov[start:end]))


def plain_lines(text: str, prov: bytes, width: int) -> list[Line]:
    """Text without Markdown, wrapped: what a person typed."""
    flow = Flow()
    flow.add(text, "", prov)
    return flow.wrapped(max(1, width))


def unfenced(text: str) -> str:
    """The code of a block that is nothing but a fence; other text as it is."""
    tokens = parser().parse(text)
    return tokens[0].content.rstrip("\n") if len(tokens) == 1 and tokens[0].type == "fence" else text

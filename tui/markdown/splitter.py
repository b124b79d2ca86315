"""Where a growing Markdown text may be cut for good.

A block is closed when the next one has begun on a complete line: no later text can change it. Lists close item by item
and fences line by line, so that the open part stays short. Knows no width and draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it.token import Token

from tui.markdown.render import ListStart, children, parser

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^\n]*)\n?")
_FORMING = re.compile(r" {0,3}(`{1,2}|~{1,2})")


@dataclass(frozen=True, slots=True)
class Closed:
    """A stretch of source that is final: whole blocks, or items of a list that goes on."""

    start: int
    end: int
    tokens: tuple[Token, ...]
    base: int
    """Offset of the text that `tokens` were parsed from; their line numbers count from there."""
    parsed: int
    """End of that text."""
    first: int
    last: int
    """tokens[first:last] are the blocks; for items of a list, the list cut short."""
    joined: bool
    """The first block continues the list before it."""
    list_start: ListStart | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """The open part is a fenced block: its lines need no parse until it closes."""

    indent: int
    mark: str
    language: str
    body: int
    """Offset of its first line of code."""

    def closes(self, line: str) -> bool:
        text = line.rstrip(" \t\n")
        bare = text.lstrip(" ")
        return len(text) - len(bare) <= 3 and len(bare) >= len(self.mark) and not bare.strip(self.mark[0])


class Splitter:
    """Feed it the text so far; it hands out what closed."""

    def __init__(self) -> None:
        self.base = 0
        """Everything before is closed."""
        self.list_start: ListStart | None = None
        """Set when the block at `base` continues a list."""
        self.fence: Fence | None = None
        self._line = 0
        """Start of the first line of the open part not looked at yet."""

    def advance(self, text: str) -> Iterator[Closed]:
        """Close all that can be closed. `text` must extend what was given before."""
        complete = text.rfind("\n") + 1
        while self._line < complete:
            if self.fence is not None:
                yield from self._in_fence(text, complete)
            else:
                yield from self._in_blocks(text, complete)

    def _in_fence(self, text: str, complete: int) -> Iterator[Closed]:
        assert self.fence is not None
        while self._line < complete:
            end = text.index("\n", self._line) + 1
            line, self._line = text[self._line : end], end
            if self.fence.closes(line):
                tokens = tuple(parser().parse(text[self.base : end]))
                yield Closed(self.base, end, tokens, self.base, end, 0, len(tokens), False)
                self.base, self.fence = end, None
                return

    def _in_blocks(self, text: str, complete: int) -> Iterator[Closed]:
        base = self.base
        tokens = tuple(parser().parse(text[base:complete]))
        self._line = complete
        spans = list(children(tokens))
        if not spans:
            return
        starts = line_offsets(text, base, complete)
        first, last = spans[-1]
        at = starts[(tokens[first].map or [0])[0]]
        if first > 0:
            yield Closed(base, at, tokens, base, complete, 0, first, self.list_start is not None, self.list_start)
            self.base, self.list_start = at, None
        if tokens[first].type == "fence":
            self._open_fence(text, at, complete)
        elif tokens[first].type in ("bullet_list_open", "ordered_list_open"):
            yield from self._items(tokens, first, last, starts, base, complete)

    def _open_fence(self, text: str, at: int, complete: int) -> None:
        match = _FENCE.match(text, at, complete)
        if match is None:  # a tab before it; the block parser will do
            return
        info = match[3].split()
        self.fence = Fence(len(match[1]), match[2], info[0] if info else "", match.end())
        self.base, self._line = at, match.end()

    def _items(
        self, tokens: tuple[Token, ...], first: int, last: int, starts: list[int], base: int, complete: int
    ) -> Iterator[Closed]:
        items = list(children(tokens, first + 1, last - 1))
        if len(items) < 2:
            return
        final = items[-1][0]
        at = starts[(tokens[final].map or [0])[0]]
        cut = (*tokens[:final], tokens[last - 1])
        ordinal = self.list_start.ordinal if self.list_start else int(tokens[first].attrGet("start") or 1)
        joined = self.list_start is not None
        yield Closed(self.base, at, cut, base, complete, first, len(cut), joined, self.list_start)
        self.base, self.list_start = at, ListStart(ordinal + len(items) - 1)


def forming(line: str) -> bool:
    """Whether a last, unfinished line may become a fence marker: showing its first strokes would flicker."""
    return _FORMING.fullmatch(line) is not None


def line_offsets(text: str, base: int, end: int) -> list[int]:
    offsets = [base]
    at = text.find("\n", base, end)
    while at >= 0:
        offsets.append(at + 1)
        at = text.find("\n", at + 1, end)
    return offsets

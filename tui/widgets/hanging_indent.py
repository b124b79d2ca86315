"""A name and what is said about it: where that needs more rows, they begin below its first word. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

LEAST = 24
"""Cells for a note that is set beside its name; with fewer it runs on below it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name with its note. `column`: cells that the name takes at least, so that notes stand below each other."""

    name: Content
    note: Content = field(default_factory=Content.empty)
    column: int = 0

    def lines(self, width: int) -> list[Content]:
        head = self.name.pad_right(max(0, self.column - self.name.cell_length))
        room = width - head.cell_length
        if not self.note or room < LEAST:
            return Content.assemble(head, self.note).wrap(max(1, width))
        first, *more = self.note.wrap(room)
        return [head + first, *(line.pad_left(head.cell_length) for line in more)]


class Hanging(Visual):
    """Entries below each other."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries

    @property
    def plain(self) -> str:
        return "\n".join(f"{e.name.plain}  {e.note.plain}" for e in self.entries)

    def _at(self, width: int) -> Content:
        return Content("\n").join(line for entry in self.entries for line in entry.lines(width))

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        return self._at(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return max((line.cell_length for e in self.entries for line in e.lines(10_000)), default=0)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return sum(len(entry.lines(width)) for entry in self.entries)

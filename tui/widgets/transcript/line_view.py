"""A scroll view whose rows are `Line`s: style names become the colours of the theme, once for the whole conversation.

Knows nothing of turns. A widget of its own for each message would have all these styles worked out for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip

from themes import SYNTAX
from tui.markdown.lines import Line
from tui.provenance import NAMES

STYLE_NAMES = (
    *("strong", "em", "strike", "code", "link", "url", "h1", "h2", "h3", "h4", "h5", "h6", "bullet", "marker"),
    *("quote-bar", "rule", "table", "th", "pre", "code-label"),
    *(f"syn-{name}" for name in SYNTAX),
    *("token-odd", "token-even", "rejected", "round-bar", "meta", "fault", "you"),
)
"""Names that rows of Markdown, of the trace, of messages and of footers use."""

PAD = 1
"""Blank columns on either side."""


class LineView(ScrollView):
    """Base of the conversation: draws lines, keeps the styles."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"md--{name}" for name in STYLE_NAMES),
        *(f"source--{name}" for name in NAMES.values()),
        *("line--selection", "line--pointed", "line--notice"),
    }
    DEFAULT_CSS = """
    LineView {
        & > .source--target { color: $source-target; text-style: $source-target-style; }
        & > .source--draft { color: $source-draft; text-style: $source-draft-style; }
        & > .source--lookup { color: $source-lookup; text-style: $source-lookup-style; }
        & > .source--rejected { color: $source-rejected; text-style: $source-rejected-style; }
        & > .md--strong { text-style: bold; }
        & > .md--em { text-style: italic; }
        & > .md--strike { text-style: strike; }
        & > .md--code { color: $syntax-number; }
        & > .md--link { color: $primary; }
        & > .md--url { color: $faint; &:ansi { text-style: dim; } }
        & > .md--h1 { text-style: bold; color: $primary; }
        & > .md--h2 { text-style: bold; color: $primary; }
        & > .md--h3 { text-style: bold; color: $primary; }
        & > .md--h4 { text-style: bold; }
        & > .md--h5 { text-style: bold; }
        & > .md--h6 { text-style: bold; }
        & > .md--bullet { color: $primary; }
        & > .md--marker { color: $primary; }
        & > .md--quote-bar { color: $primary; }
        & > .md--rule { color: $faint; &:ansi { text-style: dim; } }
        & > .md--table { color: $faint; &:ansi { text-style: dim; } }
        & > .md--th { text-style: bold; }
        & > .md--pre { color: $foreground; }
        & > .md--code-label { color: $faint; &:ansi { text-style: dim; } }
        & > .md--syn-keyword { color: $syntax-keyword; }
        & > .md--syn-string { color: $syntax-string; }
        & > .md--syn-number { color: $syntax-number; }
        & > .md--syn-comment { color: $syntax-comment; text-style: italic; }
        & > .md--syn-function { color: $syntax-function; }
        & > .md--syn-class { color: $syntax-class; }
        & > .md--syn-builtin { color: $syntax-builtin; }
        & > .md--syn-operator { color: $syntax-operator; }
        & > .md--syn-deleted { color: $syntax-deleted; }
        & > .md--token-odd { background: $tint-odd; &:ansi { text-style: reverse; } }
        & > .md--token-even { background: $tint-even; }
        & > .md--rejected { text-style: strike; }
        & > .md--round-bar { color: $faint; &:ansi { text-style: dim; } }
        & > .md--meta { color: $faint; &:ansi { text-style: dim; } }
        & > .md--fault { color: $error; }
        & > .md--you { color: $primary; text-style: bold; }
        & > .line--pointed { background: $panel; &:ansi { text-style: reverse; } }
        & > .line--selection { background: $screen-selection-background; }
        & > .line--notice { background: $surface; color: $foreground; }
    }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sources_shown = True
        """Whether text has the colour of its source; the legend has it in any case."""
        self._styles: dict[tuple[str, int], Style] = {}
        self._base: Style | None = None

    @property
    def base(self) -> Style:
        """Of the ground and of plain text."""
        if self._base is None:
            self._base = self._filtered(self.rich_style)
        return self._base

    def _filtered(self, style: Style) -> Style:
        """As this terminal shows it. Once for a style instead of for each row that has it."""
        segments = [Segment(" ", style)]
        for filter in self.get_line_filters():
            segments = filter.apply(segments, self.background_colors[1])
        return segments[0].style or style

    def style(self, names: str, prov: int) -> Style:
        """Of text with these names (blank-separated) and this provenance."""
        if names.startswith("#"):
            return self._painted(names)
        key = (names, prov)
        style = self._styles.get(key)
        if style is None:
            style = self.rich_style
            for name in names.split():
                style += self.get_component_rich_style(f"md--{name}", partial=True)
            if prov and (self.sources_shown or "meta" in names):
                style += self.get_component_rich_style(f"source--{NAMES[prov]}", partial=True)
            style = self._styles[key] = self._filtered(style)
        return style

    def _painted(self, colours: str) -> Style:
        """Of two pixels of a picture, `#upper/#lower`; they are too many to be kept."""
        upper, _, lower = colours.partition("/")
        return self._filtered(Style(color=upper, bgcolor=lower))

    def component(self, name: str, *, partial: bool = True) -> Style:
        """The look `line--name`."""
        return self._filtered(self.get_component_rich_style(f"line--{name}", partial=partial))

    def forget_styles(self) -> None:
        self._styles.clear()
        self._base = None

    def notify_style_update(self) -> None:
        self.forget_styles()
        super().notify_style_update()

    def paint_line(self, y: int) -> Strip:
        """A row of the view. `render_line`, which finds out what is under the mouse, adds where that stands."""
        raise NotImplementedError

    def render_lines(self, crop: Region) -> list[Strip]:
        """Rows as they are: there is no border, padding or tint into which each would have to be put."""
        return [self.paint_line(y).crop(*crop.column_span) for y in crop.line_range]

    def draw(self, line: Line, width: int) -> Strip:
        """One row as wide as the view."""
        blank = Segment(" " * PAD, self.base)
        segments = [blank, *(Segment(run.text, self.style(run.style, run.prov)) for run in line.runs if run.text)]
        return Strip(segments).adjust_cell_length(width, self.base)

    def marked(self, strip: Strip, name: str, start: int = 0, end: int | None = None) -> Strip:
        """Characters [start, end) of a row in the look of `line--name` over their own."""
        mark = self.component(name)
        text = strip.text
        first, last = cell_len(text[:start]), cell_len(text[:end])
        cuts = [cut for cut in dict.fromkeys((first, last, strip.cell_length)) if cut]
        parts = list(strip.divide(cuts))
        at = 1 if first else 0
        if at < len(parts) and first < last:
            parts[at] = Strip(Segment.apply_style(parts[at], post_style=mark), parts[at].cell_length)
        return Strip.join(parts)

    def boxed(self, text: Sequence[Strip], width: int) -> list[Strip]:
        """Rows of a notice: its text on a field of its own, and a blank row below."""
        field, edge = self.component("notice", partial=False), Strip.blank(1, self.base)
        wide = max(1, width - 2)
        inner = [Strip.blank(wide, field)]
        for strip in text:
            for filter in self.get_line_filters():
                strip = strip.apply_filter(filter, self.background_colors[1])
            inner.append(Strip.join([Strip.blank(2, field), strip]).adjust_cell_length(wide, field))
        inner.append(Strip.blank(wide, field))
        return [*(Strip.join([edge, strip, edge]) for strip in inner), Strip.blank(width, self.base)]

"""One answer: Markdown or trace, coloured by source, drawn line by line from cached rows.

Only rows that changed are drawn again, and layout happens only when their number does.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import RenderResult
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from themes import SYNTAX
from tui.chat import Answer
from tui.markdown.document import Document, Part, plain_lines, unfenced
from tui.markdown.lines import Line, Run
from tui.provenance import NAMES
from tui.trace import Decode, Trace
from tui.widgets.footer_lines import footer_lines, thought_lines
from tui.widgets.growing import Growing

MARKDOWN_NAMES = (
    *("strong", "em", "strike", "code", "link", "url", "h1", "h2", "h3", "h4", "h5", "h6", "bullet", "marker"),
    *("quote-bar", "rule", "table", "th", "pre", "code-label"),
    *(f"syn-{name}" for name in SYNTAX),
    *("token-odd", "token-even", "rejected", "round-bar", "meta", "fault"),
)
"""Style names that rows of Markdown, of the trace and of the footer use."""

log = logging.getLogger("dspark.tui")

NOTHING = sys.maxsize


class View(StrEnum):
    """What F4 steps through."""

    SOURCE = "source"
    """Markdown, coloured by where each token came from."""
    MARKDOWN = "markdown"
    """Markdown with syntax colours."""
    TRACE = "trace"
    """Raw tokens and rounds."""


class Verbatim:
    """The text as it is, wrapped: what is shown when Markdown fails."""

    def __init__(self, answer: Answer, width: int) -> None:
        self.width = width
        self._answer = answer
        self._lines: list[Line] = []

    def resize(self, width: int) -> None:
        self.width = width

    def finish(self) -> None: ...

    def settle(self) -> int:
        self._lines = plain_lines(self._answer.text, bytes(self._answer.prov), self.width)
        return 0

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, y: int) -> Line:
        return self._lines[y] if y < len(self._lines) else Line(())


class AnswerView(Growing, Widget):
    """Shows an `Answer`. `feed` takes what it yields; `flush` draws it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"md--{name}" for name in MARKDOWN_NAMES),
        *(f"source--{name}" for name in NAMES.values()),
        "answer--selection",
        "answer--block",
    }
    DEFAULT_CSS = """
    AnswerView {
        height: auto;
        padding: 0 1;
        margin-bottom: 1;
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
        & > .answer--block { background: $panel; &:ansi { text-style: reverse; } }
        & > .answer--selection { background: $screen-selection-background; }
    }
    """
    can_focus = False

    def __init__(self, answer: Answer, view: View = View.SOURCE, decode: Decode | None = None) -> None:
        super().__init__()
        self.answer = answer
        self._view = view
        self._decode = decode
        self._doc: Document | Trace | Verbatim = Document(1)
        self._shown = 0
        """Rounds that the trace has ended."""
        self._head: list[Line] = []
        self._footer: list[Line] = []
        self.unfolded = False
        """Whether the reasoning is shown."""
        self._strips: dict[int, Strip] = {}
        self._styles: dict[tuple[str, int], Style] = {}
        self._height = 0
        self._marked = range(0)
        """Rows under the block cursor."""
        self._changed = NOTHING
        """First row of the text that changed since the last flush."""
        self._rebuild()

    # What comes in ----------------------------------------------------------------------------------------------------

    def feed(self, text: str, code: int) -> None:
        """Text of one token; shown at the next flush."""
        if isinstance(self._doc, Document):
            self._doc.feed(text, code)

    def flush(self) -> None:
        """Bring the rows up to date and draw what changed."""
        if isinstance(self._doc, Trace):
            self._feed_trace(self._doc)
        elif self.answer.status.over:
            self._doc.finish()
        self._settle()
        head, self._head = self._head, self._thought()
        first = 0 if head != self._head else self._changed + len(head)
        self._changed = NOTHING
        self._footer = footer_lines(self.answer, self._doc.width)
        height = len(self._head) + len(self._doc) + len(self._footer)
        for y in [y for y in self._strips if y >= first]:
            del self._strips[y]
        changed = Region(0, first, max(1, self.size.width), max(1, max(height, self._height) - first))
        grown, self._height = height != self._height, height
        self.refresh(changed, layout=grown)

    def _settle(self) -> None:
        """Rows up to date. A fault in drawing Markdown costs the Markdown of this answer, never the app."""
        try:
            first = self._doc.settle()
        except Exception:  # text of a model may find a fault in a parser or a highlighter
            log.exception("an answer is shown without Markdown")
            self._doc = Verbatim(self.answer, self._doc.width)
            first = self._doc.settle()
        self._changed = min(self._changed, first)

    def _thought(self) -> list[Line]:
        """The reasoning folded to a row, or below it in full."""
        if isinstance(self._doc, Trace):
            return []
        return thought_lines(self.answer, self._doc.width, self.unfolded)

    def on_click(self, event: events.Click) -> None:
        if self._head and event.y == 0:
            self.toggle_thought()

    def toggle_thought(self) -> None:
        """Fold or unfold the reasoning."""
        self.unfolded = not self.unfolded
        self.flush()

    def show(self, view: View) -> None:
        """Change the view."""
        if view is self._view:
            return
        rebuild = View.TRACE in (view, self._view)
        self._view = view
        self._styles.clear()
        self._strips.clear()
        if rebuild:
            self._rebuild()
            self.refresh(layout=True)
        else:
            self.refresh()

    def _rebuild(self) -> None:
        width = self._doc.width
        if self._view is View.TRACE:
            self._doc, self._shown = Trace(width), 0
            self._feed_trace(self._doc)
        else:
            self._doc = Document(width)
            for text, code in self.answer.pieces():
                self._doc.feed(text, code)
            if self.answer.status.over:
                self._doc.finish()

    def _feed_trace(self, trace: Trace) -> None:
        """Rounds that are complete in the answer, then nothing until the next one is."""
        answer = self.answer
        while self._shown < len(answer.rounds):
            round = answer.rounds[self._shown]
            base = answer.rounds[0].start
            first, last = round.start - base, round.start - base + len(round.tokens)
            if last > len(answer.spans) and not answer.status.over:
                return
            for index in range(first, min(last, len(answer.spans))):
                trace.token(answer.span_text(index), answer.spans[index].code)
            turned_down = round.drafted[round.accepted :]
            text = self._decode(turned_down) if self._decode and turned_down else f"×{len(turned_down)}"
            trace.round(text if turned_down else "")
            self._shown += 1

    # What goes out ----------------------------------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._height = self._measure(width)
        return self._height

    def rows(self, width: int) -> int:
        """Height in a conversation of this width, the blank row below included."""
        return self._measure(max(1, width - 2)) + 1

    def _measure(self, width: int) -> int:
        if width != self._doc.width:
            self._doc.resize(width)
            self._strips.clear()
        self._settle()
        head, self._head = self._head, self._thought()
        self._footer = footer_lines(self.answer, width)
        if head != self._head:
            self._strips.clear()
        return len(self._head) + len(self._doc) + len(self._footer)

    def render(self) -> RenderResult:
        return ""

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._strip(y)
        return strip

    def _strip(self, y: int) -> Strip:
        line = self._row(y)
        segments = [Segment(run.text, self._style(run.style, run.prov)) for run in line.runs if run.text]
        strip = Strip(segments).adjust_cell_length(self.size.width, self.rich_style)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            strip = self._selected(line, *span)
        if y in self._marked:
            strip = strip.apply_style(self.get_component_rich_style("answer--block", partial=True))
        return strip.apply_offsets(0, y)

    def _selected(self, line: Line, start: int, end: int) -> Strip:
        mark = self.get_component_rich_style("answer--selection", partial=True)
        end = len(line.text) if end == -1 else end
        segments: list[Segment] = []
        at = 0
        for run in line.runs:
            style = self._style(run.style, run.prov)
            a, b = max(0, start - at), max(0, min(end - at, len(run.text)))
            for text, picked in ((run.text[:a], 0), (run.text[a:b], 1), (run.text[max(a, b) :], 0)):
                if text:
                    segments.append(Segment(text, style + mark if picked else style))
            at += len(run.text)
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)

    def _row(self, y: int) -> Line:
        if y < len(self._head):
            return self._head[y]
        y -= len(self._head)
        n = len(self._doc)
        if y < n:
            return self._doc.line(y)
        return self._footer[y - n] if y - n < len(self._footer) else Line((Run(""),))

    def _style(self, names: str, prov: int) -> Style:
        key = (names, prov)
        style = self._styles.get(key)
        if style is None:
            style = self.rich_style
            for name in names.split():
                style += self.get_component_rich_style(f"md--{name}", partial=True)
            if prov and (self._view is not View.MARKDOWN or "meta" in names):
                style += self.get_component_rich_style(f"source--{NAMES[prov]}", partial=True)
            self._styles[key] = style
        return style

    def notify_style_update(self) -> None:
        self._styles.clear()
        self._strips.clear()
        super().notify_style_update()

    # Blocks -----------------------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """What the block cursor stops at; the whole answer where there is no Markdown."""
        head = len(self._head)
        if isinstance(self._doc, Document):
            return [Part(p.start, p.end, p.first + head, p.last + head) for p in self._doc.parts()]
        return [Part(0, len(self.answer.text), head, head + len(self._doc))] if len(self._doc) else []

    def source(self, part: Part) -> str:
        """Its Markdown; of a code block the code alone."""
        text = self._doc.text if isinstance(self._doc, Document) else self.answer.text
        return unfenced(text[part.start : part.end].strip("\n"))

    def mark(self, part: Part | None) -> None:
        """Show the block cursor on a part, or nowhere."""
        self._marked = range(part.first, part.last) if part is not None else range(0)
        self._strips.clear()
        self.refresh()

    # Selection --------------------------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, its wrapped rows joined again."""
        out: list[str] = []
        for y in range(len(self._head) + len(self._doc)):
            span = selection.get_span(y)
            if span is None:
                continue
            line = self._row(y)
            start, end = span
            text = line.text[start : None if end == -1 else end]
            out.append(line.joint + text if out else text)
        return "".join(out), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

"""One answer as rows: Markdown or trace, the reasoning above, figures below. No widget: the conversation draws it.

Says which rows changed, so that only those are drawn again.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

from tui.conversation.chat import Answer
from tui.markdown.document import Document, Part, plain_lines, unfenced
from tui.markdown.lines import BLANK, Line
from tui.widgets.transcript.answer_footer import footer_lines, thought_lines
from tui.widgets.transcript.token_trace import Decode, Trace

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

    @property
    def next(self) -> View:
        views = [*View]
        return views[(views.index(self) + 1) % len(views)]

    @property
    def says(self) -> str:
        return {
            View.SOURCE: "colours: source of each token",
            View.MARKDOWN: "colours: Markdown and syntax",
            View.TRACE: "raw trace: tokens and rounds",
        }[self]


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


class AnswerView:
    """Shows an `Answer`. `feed` takes what it yields; `flush` brings the rows up to date."""

    def __init__(self, answer: Answer, view: View = View.SOURCE, decode: Decode | None = None) -> None:
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
        self._changed = NOTHING
        """First row of the text that changed since the last flush."""
        self._rebuild()

    # What comes in ----------------------------------------------------------------------------------------------------

    def feed(self, text: str, code: int) -> None:
        """Text of one token; shown at the next flush."""
        if isinstance(self._doc, Document):
            self._doc.feed(text, code)

    def flush(self) -> int:
        """Bring the rows up to date; the first one that is not what it was."""
        if isinstance(self._doc, Trace):
            self._feed_trace(self._doc)
        elif self.answer.status.over:
            self._doc.finish()
        self._settle()
        head, self._head = self._head, self._thought()
        first = 0 if head != self._head else min(self._changed, len(self._doc)) + len(head)
        self._changed = NOTHING
        self._footer = footer_lines(self.answer, self._doc.width)
        return first

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

    def toggle_thought(self) -> None:
        """Fold or unfold the reasoning."""
        self.unfolded = not self.unfolded

    def show(self, view: View) -> bool:
        """Change the view; whether the rows are others now."""
        before, self._view = self._view, view
        rebuild = before is not view and View.TRACE in (view, before)
        if rebuild:
            self._rebuild()
        return rebuild

    def _rebuild(self) -> None:
        width = self._doc.width
        if self._view is View.TRACE and self.answer.status.over and not self.answer.rounds:
            self._doc = Verbatim(self.answer, width)  # from elsewhere: there are no rounds to show
        elif self._view is View.TRACE:
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

    def rows(self, width: int) -> int:
        """Height in rows of this width, the blank row below included."""
        width = max(1, width)
        if width != self._doc.width:
            self._doc.resize(width)
        self._settle()
        self._head = self._thought()
        self._footer = footer_lines(self.answer, width)
        return self.height

    @property
    def height(self) -> int:
        """Rows as they were last brought up to date, the blank one below included."""
        return len(self._head) + len(self._doc) + len(self._footer) + 1

    @property
    def said(self) -> int:
        """Rows above the figures: what a selection takes."""
        return len(self._head) + len(self._doc)

    @property
    def head(self) -> int:
        """Rows of the reasoning."""
        return len(self._head)

    def line(self, y: int) -> Line:
        """Row y of what was last brought up to date."""
        if y < len(self._head):
            return self._head[y]
        y -= len(self._head)
        n = len(self._doc)
        if y < n:
            return self._doc.line(y)
        return self._footer[y - n] if y - n < len(self._footer) else BLANK

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

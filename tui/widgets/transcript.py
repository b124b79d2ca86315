"""The conversation: one widget that draws the rows in view, whatever lies before and behind them.

What a drawing and a page cost does not depend on how long the conversation is: there are no widgets inside, only what
is near the view is rendered, and rows that were drawn are kept. Follows the end while the user is there, and never
moves the view when they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.selection import SELECT_ALL, Selection
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from tui.chat import Answer, Chat, Turn
from tui.keys import reading_bindings
from tui.thumbs import is_picture
from tui.trace import Decode
from tui.widgets.answer_view import AnswerView, View
from tui.widgets.entries import ROWS, Column, Entry
from tui.widgets.line_view import PAD, LineView
from tui.widgets.pointing import Pointing
from tui.widgets.user_view import UserView
from tui.widgets.window import MARGIN

if TYPE_CHECKING:
    from PIL import Image


class Transcript(Pointing, LineView, can_focus=True):
    """Shows a `Chat`."""

    BINDINGS: ClassVar[list[BindingType]] = [*reading_bindings()]

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-color: $panel;
    }
    """

    class Scrolled(Message):
        """The view moved, by the user or by growing text."""

    class Pictured(Message):
        """A turn with pictures came near the view: small ones may be shown under their lines."""

        def __init__(self, turn: Turn) -> None:
            super().__init__()
            self.turn = turn

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = View.SOURCE
        self.decode: Decode | None = None
        self.model = ""
        """Whose tokens `decode` understands."""
        self.following = True
        """Whether the view stays at the end."""
        self.column = Column(self._dress)
        self._holding = False
        """Whether the view is being moved by the program."""

    # Following --------------------------------------------------------------------------------------------------------

    def anchor(self, anchor: bool = True) -> None:
        """Follow the end from now on."""
        self.following = anchor
        self._settle()

    def release_anchor(self) -> None:
        """Textual says so before each scrolling; whether the end is still followed is seen from where that leads."""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._holding:
            self.following = new_value >= self.max_scroll_y
            if not self.column.exact(new_value, self.size.height, MARGIN):
                self._settle()
        self.post_message(self.Scrolled())

    # What it shows ----------------------------------------------------------------------------------------------------

    def open(self, chat: Chat) -> None:
        """Show another conversation from its end."""
        self.unpoint()
        self.column.clear()
        for turn in chat.turns:
            self.column.append(Entry(turn))
        self.anchor()
        self.refresh()

    def add(self, turn: Turn) -> None:
        """Append a turn and follow it."""
        self.column.append(Entry(turn))
        self.anchor()
        self.refresh()

    def drop(self, turn: Turn) -> None:
        """Take a turn off the screen."""
        entry = self.column.of(turn)
        if entry is not None:
            self._take_out(entry)

    def tell(self, text: Content, id: str = "") -> None:
        """Say something that is no turn, at the end, and go there; one with an id is said in its place."""
        if not (id and self.retell(id, text)):
            self.column.append(Entry(notice=text, id=id))
            self.anchor()
            self.refresh()

    def retell(self, id: str, text: Content) -> bool:
        """Say another text in the place of one that has this id; whether there was one."""
        entry = self._told(id)
        if entry is not None:
            entry.notice = text
            self._changed(entry)
        return entry is not None

    def told(self, id: str) -> bool:
        """Whether something with this id stands there."""
        return self._told(id) is not None

    def dismiss(self, id: str) -> None:
        """Take what has this id off the screen, if it is there."""
        entry = self._told(id)
        if entry is not None:
            self._take_out(entry)

    def _told(self, id: str) -> Entry | None:
        return next((entry for entry in self.column if entry.id == id), None)

    def _take_out(self, entry: Entry) -> None:
        if self._at is not None and self._at[0] is entry:
            self.unpoint()
        self.column.remove(entry)
        self._settle()
        self.refresh()

    def decoder(self, answer: Answer) -> Decode | None:
        """Words for the tokens of an answer; none for those of another model, whose ids mean other words."""
        return self.decode if answer.model in ("", self.model) else None

    def answer(self, turn: Turn) -> AnswerView | None:
        """Its rows; None while it is far from the view."""
        entry = self.column.of(turn)
        return entry.answer if entry is not None else None

    def _dress(self, entry: Entry) -> None:
        assert entry.turn is not None
        entry.user = UserView(entry.turn.user, entry.turn.images)
        entry.answer = AnswerView(entry.turn.answer, self.view, self.decoder(entry.turn.answer))
        entry.answer.unfolded = entry.unfolded
        if entry.turn.images:
            self._picture(entry.turn)

    def flush(self, turn: Turn) -> None:
        """Draw what an answer was fed."""
        entry = self.column.of(turn)
        if entry is None or entry.answer is None or not entry.width:
            return
        first = entry.above + entry.answer.flush()
        for row in [row for row in entry.strips if row >= first]:
            del entry.strips[row]
        before = entry.rows
        self.column.grown(entry)
        if entry.rows != before:
            self._settle()
        start = self.column.starts[self.column.entries.index(entry)] + first - self.scroll_offset.y
        if start < self.size.height:
            self.refresh(Region(0, max(0, start), self.size.width, self.size.height - max(0, start)))

    def show(self, view: View) -> None:
        """Change the view of every answer."""
        self.view = view
        self.sources_shown = view is not View.MARKDOWN
        self.forget_styles()
        for entry in self.column:
            if entry.answer is not None and entry.answer.show(view):
                entry.width = 0
        self._settle()
        self.refresh()

    def toggle_thought(self, turn: Turn) -> None:
        """Fold or unfold the reasoning."""
        entry = self.column.of(turn)
        if entry is not None and entry.answer is not None:
            entry.answer.toggle_thought()
            self._changed(entry)
        elif entry is not None:
            entry.unfolded = not entry.unfolded

    def toggle_message(self, turn: Turn) -> None:
        """Unfold or fold what the user said."""
        entry = self.column.of(turn)
        if entry is not None and entry.user is not None and entry.user.toggle():
            self._changed(entry)

    def show_images(self, turn: Turn) -> None:
        """What a turn's pictures are was found out."""
        entry = self.column.of(turn)
        if entry is not None and entry.user is not None and entry.user.show_images(turn.images):
            self._changed(entry)
            self._picture(turn)

    def _picture(self, turn: Turn) -> None:
        # In a layout the sender would be the screen, and what a screen sends never reaches the app.
        self.post_message(self.Pictured(turn).set_sender(self))

    def show_thumbs(self, turn: Turn, thumbs: tuple[Image.Image | None, ...]) -> None:
        """Small pictures of those that a message names."""
        entry = self.column.of(turn)
        if entry is not None and entry.user is not None and entry.user.show_thumbs(thumbs):
            self._changed(entry)

    def reveal(self, turn: Turn, row: int | None = None) -> None:
        """Bring a turn into view, from its beginning, or from a row of its answer."""
        entry = self.column.of(turn)
        if entry is None:
            return
        self.following = False
        index = self.column.entries.index(entry)
        self._reach(lambda: self.column.starts[index])
        at = self.column.starts[index]
        if row is not None:
            at += row + entry.above
            if not self.scroll_y <= at < self.scroll_y + self.size.height - 1:
                self.scroll_to(y=max(0, at - self.size.height // 3), animate=False)
        else:
            self.scroll_to(y=at, animate=False)

    # Where it is ------------------------------------------------------------------------------------------------------

    @property
    def text_width(self) -> int:
        """Columns for the text of an answer."""
        return max(1, self.scrollable_content_region.width - 2 * PAD)

    def _changed(self, entry: Entry) -> None:
        self.column.changed(entry)
        self._settle()
        self.refresh()

    def _settle(self) -> None:
        """Render what is near the view; what is in view stays where it is."""
        if not self.size:
            return
        place = self.column.place(self.scroll_y)
        height = self.size.height
        self._reach(lambda: self.column.height - height if self.following else self.column.row(place))
        with self._hold():
            y = self.max_scroll_y if self.following else min(self.column.row(place), self.max_scroll_y)
            self.scroll_target_y = self.scroll_y = max(0, y)

    def _reach(self, top: Callable[[], float]) -> None:
        for _ in range(3):  # a scrollbar that appears takes a column, and so other rows begin
            self.column.resize(self.text_width)
            self.column.render(top, self.size.height, MARGIN)
            size = Size(self.size.width, self.column.height)
            if size == self.virtual_size and self.column.width == self.text_width:
                break
            # A layout of the screen, which a change of this attribute would bring, has nothing to do.
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType] (untyped descriptor)
            with self._hold():
                self._scroll_update(size)

    @contextmanager
    def _hold(self) -> Iterator[None]:
        """What moves the view inside is not the user."""
        before, self._holding = self._holding, True
        try:
            yield
        finally:
            self._holding = before

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        with self._hold():
            resized = super()._size_updated(size, virtual_size, container_size, layout)
        if resized or self.column.width != self.text_width:
            self._settle()
        return resized

    def watch_show_vertical_scrollbar(self) -> None:
        self._settle()

    # Drawing ----------------------------------------------------------------------------------------------------------

    def paint_line(self, y: int) -> Strip:
        found = self.column.at(self.scroll_offset.y + y)
        return Strip.blank(self.size.width, self.base) if found is None else self._over(*found, self._drawn(*found))

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        found = self.column.at(row)
        last = self.column.entries[-1].key(ROWS - 1) if self.column.entries and row else 0
        return self.paint_line(y).apply_offsets(0, last if found is None else found[0].key(found[1]))

    def _drawn(self, entry: Entry, row: int) -> Strip:
        strip = entry.strips.get(row)
        if strip is None:
            width = self.size.width
            if entry.notice is None:
                strip = entry.strips[row] = self.draw(entry.line(row), width)
            else:
                self._draw_notice(entry, entry.notice, width)
                strip = entry.strips.get(row) or Strip.blank(width, self.base)
        return strip

    def _draw_notice(self, entry: Entry, notice: Content, width: int) -> None:
        style = self.get_visual_style("line--notice")
        text = Visual.to_strips(self, notice, max(1, self.text_width - 4), None, style, apply_selection=False)
        for row, strip in enumerate(self.boxed(text, self.text_width + 2 * PAD)):
            entry.strips[row] = strip.adjust_cell_length(width, self.base)

    def _over(self, entry: Entry, row: int, strip: Strip) -> Strip:
        """A row with the block cursor and the selection on it."""
        if self.is_pointed(entry, row):
            strip = self.marked(strip, "pointed")
        selection = self.screen.selections.get(self)
        span = selection.get_span(entry.key(row)) if selection is not None else None
        if span is None or row >= entry.said:
            return strip
        end = len(strip.text.rstrip())
        return self.marked(strip, "selection", max(PAD, span[0]), end if span[1] == -1 else min(end, span[1]))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.forget_styles()

    def forget_styles(self) -> None:
        super().forget_styles()
        self.column.forget_strips()

    # Selection --------------------------------------------------------------------------------------------------------

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, its wrapped rows joined again."""
        out: list[str] = []
        for entry in self.column:
            if selection.end is not None and entry.key(0) > selection.end.y:
                break
            if selection.start is None or entry.key(ROWS - 1) >= selection.start.y:
                out.append(self._picked(entry, selection))
        return "\n\n".join(text for text in out if text), "\n"

    def _picked(self, entry: Entry, selection: Selection) -> str:
        if entry.turn is not None and (entry.answer is None or entry.width != self.column.width):
            entry = Entry(entry.turn, serial=entry.serial, unfolded=entry.unfolded)  # far away: only to be read
            self._dress(entry)
            entry.measure(self.column.width)
        out = ""
        for row in range(entry.said):
            span = selection.get_span(entry.key(row))
            if span is not None and not (entry.notice is None and is_picture(entry.line(row))):
                line = entry.line(row) if entry.notice is None else None
                text = line.text if line is not None else self._drawn(entry, row).text[PAD:].rstrip()
                start, end = max(0, span[0] - PAD), max(0, span[1] - PAD) if span[1] != -1 else None
                out += (line.joint if line is not None else "\n") * bool(out) + text[start:end]
        return out.strip("\n")

    def on_click(self, event: events.Click) -> None:
        """Once: fold or unfold what can be; twice: select the message; three times: all."""
        found = self.column.at(self.scroll_offset.y + event.y)
        if found is None or (event.chain == 1 and self.text_selection):
            return
        entry, row = found
        if event.chain > 1:
            event.prevent_default()
            event.stop()
            whole = Selection(Offset(0, entry.key(0)), Offset(0, entry.key(entry.said)))
            self.screen.selections = {self: whole if event.chain == 2 else SELECT_ALL}
        elif entry.turn is not None and row < entry.above:
            self.toggle_message(entry.turn)
        elif entry.turn is not None and entry.answer is not None and row == entry.above and entry.answer.head:
            self.toggle_thought(entry.turn)

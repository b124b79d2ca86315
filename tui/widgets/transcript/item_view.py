"""A column of entries: one widget that draws the rows in view, whatever lies before and behind them.

What a drawing and a page cost does not depend on how long the column is: there are no widgets inside, only what is near
the view is rendered, and rows that were drawn are kept. Follows the end while the user is there, and never moves the
view when they are not. Knows rows and entries, and no conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from tui.widgets.transcript.items import ROWS, Column, Entry
from tui.widgets.transcript.line_view import PAD, LineView
from tui.widgets.transcript.viewport import MARGIN


class EntryView(LineView):
    """Shows a `Column`; what its entries look like is `materialise`'s business."""

    DEFAULT_CSS = """
    EntryView {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-color: $panel;
    }
    """

    class Scrolled(Message):
        """The view moved, by the user or by growing text."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.following = True
        """Whether the view stays at the end."""
        self.column = Column(self.materialise)
        self._holding = False
        """Whether the view is being moved by the program."""

    def materialise(self, entry: Entry) -> None:
        """Give an entry that comes near the view its rows."""
        raise NotImplementedError

    def mark(self, entry: Entry, row: int, strip: Strip) -> Strip:
        """A drawn row with what lies over it."""
        return strip

    # Following --------------------------------------------------------------------------------------------------------

    def anchor(self, anchor: bool = True) -> None:
        """Follow the end from now on."""
        self.following = anchor
        self.settle()

    def release_anchor(self) -> None:
        """Textual says so before each scrolling; whether the end is still followed is seen from where that leads."""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._holding:
            self.following = new_value >= self.max_scroll_y
            if not self.column.exact(new_value, self.size.height, MARGIN):
                self.settle()
        self.post_message(self.Scrolled())

    # Where it is ------------------------------------------------------------------------------------------------------

    @property
    def text_width(self) -> int:
        """Columns for the text of an answer."""
        return max(1, self.scrollable_content_region.width - 2 * PAD)

    def changed(self, entry: Entry) -> None:
        self.column.changed(entry)
        self.settle()
        self.refresh()

    def settle(self) -> None:
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
            self.settle()
        return resized

    def watch_show_vertical_scrollbar(self) -> None:
        self.settle()

    # Drawing ----------------------------------------------------------------------------------------------------------

    def paint_line(self, y: int) -> Strip:
        found = self.column.at(self.scroll_offset.y + y)
        return Strip.blank(self.size.width, self.base) if found is None else self.mark(*found, self.drawn(*found))

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        found = self.column.at(row)
        last = self.column.entries[-1].key(ROWS - 1) if self.column.entries and row else 0
        return self.paint_line(y).apply_offsets(0, last if found is None else found[0].key(found[1]))

    def drawn(self, entry: Entry, row: int) -> Strip:
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

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.forget_styles()

    def forget_styles(self) -> None:
        super().forget_styles()
        self.column.forget_strips()

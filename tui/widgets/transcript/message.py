"""What the user said, as rows, with small pictures of what went with it. No widget: the conversation draws it."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from engine.chat.terminal_safe import clean, one_line
from tui.markdown.lines import BLANK, Flow, Line
from tui.widgets.transcript import thumbnails

if TYPE_CHECKING:
    from PIL import Image

LONG = 16
"""Lines from which on a message is folded; pastes and files are long, and are there to be read by the model."""
SHORT = 8
"""Lines of it that stay."""


class UserView:
    """The user's message, literally; a long one by its beginning."""

    def __init__(self, text: str, images: tuple[str, ...] = ()) -> None:
        self._text = clean(text)
        self._images = images
        self._thumbs: tuple[Image.Image | None, ...] = ()
        self._lines = self._text.split("\n")
        self.unfolded = False
        self._width = 0
        self._rows: list[Line] = []

    @property
    def long(self) -> bool:
        """Whether there is something to fold."""
        return len(self._lines) > LONG

    def show_images(self, images: tuple[str, ...]) -> bool:
        """What is known of the pictures by now; whether it is something new."""
        new, self._images, self._width = images != self._images, images, 0
        return new

    def show_thumbs(self, thumbs: tuple[Image.Image | None, ...]) -> bool:
        """Small pictures under the lines about them; whether there are others than before."""
        new, self._thumbs, self._width = thumbs != self._thumbs, thumbs, 0
        return new

    def toggle(self) -> bool:
        """A long message in full, or its beginning; whether there was something to fold."""
        self.unfolded, self._width = self.long and not self.unfolded, 0
        return self.long

    def rows(self, width: int) -> int:
        """Height in rows of this width, the blank row below included."""
        if width != self._width:
            self._width, self._rows = width, [*self._lines_of(max(1, width)), BLANK]
        return len(self._rows)

    def line(self, y: int) -> Line:
        """Row y of what was last measured."""
        return self._rows[y]

    def _lines_of(self, width: int) -> list[Line]:
        flow = Flow()
        flow.add("You › ", "you")
        if self.unfolded or not self.long:
            flow.add(self._text, "")
        else:
            flow.add("\n".join(self._lines[:SHORT]), "")
            more = f"{len(self._lines) - SHORT:,} more lines (click, or Space under the block cursor)"
            flow.add(f"\n  … {more}", "meta")
        rows = flow.wrapped(width)
        for name, thumb in zip_longest(self._images, self._thumbs[: len(self._images)]):
            about = Flow()
            about.add(f"  └ image: {one_line(name)}", "meta")
            rows += about.wrapped(width)
            if thumb is not None:
                rows += thumbnails.lines(thumb, width)
        return rows

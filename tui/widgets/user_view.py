"""What the user said."""

from __future__ import annotations

from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from engine.sanitize import clean, one_line

LONG = 16
"""Lines from which on a message is folded; pastes and files are long, and are there to be read by the model."""
SHORT = 8
"""Lines of it that stay."""


class UserView(Static):
    """The user's message, literally; a long one by its beginning."""

    DEFAULT_CSS = """
    UserView {
        height: auto;
        padding: 0 1;
        margin-bottom: 1;
        color: $foreground;
        &.-at { background: $panel; &:ansi { text-style: reverse; } }
    }
    """

    class Folded(Message):
        """Another height."""

        def __init__(self, view: UserView) -> None:
            super().__init__()
            self.view = view

    def __init__(self, text: str, images: tuple[str, ...] = ()) -> None:
        self._text = clean(text)
        self._images = images
        self._lines = self._text.split("\n")
        self._whole = len(self._lines) <= LONG
        self._said = self._content()
        super().__init__(self._said)

    def show_images(self, images: tuple[str, ...]) -> bool:
        """What is known of the pictures by now; whether it is something new."""
        self._images = images
        return self._redraw()

    def toggle(self) -> None:
        """A long message in full, or its beginning."""
        if len(self._lines) > LONG:
            self._whole = not self._whole
            self._redraw()
            self.post_message(self.Folded(self))

    def on_click(self) -> None:
        if not self.text_selection:
            self.toggle()

    def _redraw(self) -> bool:
        before, self._said = self._said, self._content()
        self.update(self._said)
        return self._said != before

    def _content(self) -> Content:
        parts: list[tuple[str, str] | str] = [("You › ", "bold $primary")]
        if self._whole:
            parts.append(self._text)
        else:
            more = f"{len(self._lines) - SHORT:,} more lines (click, or Space under the block cursor)"
            parts += ["\n".join(self._lines[:SHORT]), (f"\n  … {more}", "$faint")]
        for name in self._images:
            parts.append((f"\n  └ image: {one_line(name)}", "$faint"))
        return Content.assemble(*parts)

    def rows(self, width: int) -> int:
        """Height in a conversation of this width, the blank row below included."""
        return self._said.get_height({}, max(1, width - 2)) + 1

"""What the user said."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from engine.sanitize import clean, one_line


class UserView(Static):
    """The user's message, literally."""

    DEFAULT_CSS = """
    UserView {
        height: auto;
        padding: 0 1;
        margin-bottom: 1;
        color: $foreground;
        &.-at { background: $panel; &:ansi { text-style: reverse; } }
    }
    """

    def __init__(self, text: str, images: tuple[str, ...] = ()) -> None:
        self._text = clean(text)
        self._said = self._content(images)
        super().__init__(self._said)

    def show_images(self, images: tuple[str, ...]) -> bool:
        """What is known of the pictures by now; whether it is something new."""
        before, self._said = self._said, self._content(images)
        self.update(self._said)
        return self._said != before

    def _content(self, images: tuple[str, ...]) -> Content:
        parts: list[tuple[str, str] | str] = [("You › ", "bold $primary"), self._text]
        for name in images:
            parts.append((f"\n  └ image: {one_line(name)}", "$faint"))
        return Content.assemble(*parts)

    def rows(self, width: int) -> int:
        """Height in a conversation of this width, the blank row below included."""
        return self._said.get_height({}, max(1, width - 2)) + 1

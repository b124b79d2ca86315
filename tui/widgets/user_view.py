"""What the user said."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from engine.sanitize import clean


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
        parts: list[tuple[str, str] | str] = [("You › ", "bold $primary"), clean(text)]
        for name in images:
            parts.append((f"\n  └ image: {clean(name)}", "$faint"))
        self._said = Content.assemble(*parts)
        super().__init__(self._said)

    def rows(self, width: int) -> int:
        """Height in a conversation of this width, the blank row below included."""
        return self._said.get_height({}, max(1, width - 2)) + 1

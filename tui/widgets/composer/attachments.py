"""The rows above the message that say which pictures go with it, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from engine.chat.terminal_safe import one_line
from tui.conversation.images import Attachment

MOST = 3


def rows(attachments: Sequence[Attachment], width: int) -> Content:
    """One row a picture, the last one standing for those that have no room."""
    shown = attachments if len(attachments) <= MOST else attachments[: MOST - 1]
    parts = [
        Content.assemble(
            ("└ ", "$faint"),
            ("not sent: " if a.trouble else "image: ", "$warning" if a.trouble else "$faint"),
            (one_line(a.text), "$warning" if a.trouble else ""),
        ).truncate(max(1, width), ellipsis=True)
        for a in shown
    ]
    if len(shown) < len(attachments):
        parts.append(Content.styled(f"└ and {len(attachments) - len(shown)} more images", "$faint"))
    return Content("\n").join(parts)


class Attachments(Static):
    """Hidden while there are none."""

    DEFAULT_CSS = """
    Attachments { display: none; height: auto; max-height: 3; padding: 0 2; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown: Sequence[Attachment] = ()

    class Clicked(Message):
        """The user wants to see them."""

    def on_click(self) -> None:
        self.post_message(self.Clicked())

    def show(self, attachments: Sequence[Attachment]) -> None:
        self.shown = attachments
        self.display = bool(attachments)
        self.on_resize()

    def on_resize(self) -> None:
        if self.shown:
            self.update(rows(self.shown, max(10, self.app.size.width - 4)))

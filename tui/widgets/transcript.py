"""The conversation: the last turns as widgets, older ones mounted when the user scrolls up to them.

Follows the end while the user is there, and never moves the view when they are not.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from tui.chat import Chat, Turn
from tui.trace import Decode
from tui.widgets.answer_view import AnswerView, View
from tui.widgets.growing import Settled
from tui.widgets.user_view import UserView

WINDOW = 16
"""Turns mounted at first, and how many more each time."""


class Earlier(Static):
    """Says that there is more above."""

    DEFAULT_CSS = """
    Earlier { height: 1; margin-bottom: 1; text-align: center; color: $faint; &:ansi { text-style: dim; } }
    """

    class Wanted(Message):
        """The user asked for earlier turns."""

    def on_click(self) -> None:
        self.post_message(self.Wanted())


class Turns(Settled, Vertical):
    """Holds the widgets; as tall as the window at least, so that a short conversation begins at the top."""


class Transcript(Settled, VerticalScroll, can_focus=True):
    """Shows a `Chat`."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-size-vertical: 1; scrollbar-color: $panel; }
    Transcript > #turns { height: auto; min-height: 100%; padding-top: 1; }
    """

    class Scrolled(Message):
        """The view moved, by the user or by growing text."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = View.SOURCE
        self.decode: Decode | None = None
        self._chat = Chat()
        self._first = 0
        """Index of the earliest turn that is mounted."""
        self._answers: dict[str, AnswerView] = {}
        self._turns = Turns(id="turns")
        self.following = True
        """Whether the view stays at the end."""

    def compose(self) -> ComposeResult:
        yield self._turns

    def on_mount(self) -> None:
        self.anchor()

    def anchor(self, anchor: bool = True) -> None:
        self.following = anchor
        super().anchor(anchor)

    def release_anchor(self) -> None:
        """With nothing to scroll there is nothing to hold on to: a later overflow is still followed."""
        if self.max_scroll_y > 0:
            self.following = False
            super().release_anchor()

    async def open(self, chat: Chat) -> None:
        """Show another conversation from its end."""
        self._chat = chat
        self._answers.clear()
        await self._turns.remove_children()
        self._first = max(0, len(chat.turns) - WINDOW)
        if self._first:
            await self._turns.mount(self._earlier())
        for turn in chat.turns[self._first :]:
            await self._turns.mount_all(self._widgets(turn))
        self.anchor()

    async def add(self, turn: Turn) -> AnswerView:
        """Append a turn and follow it."""
        await self._turns.mount_all(self._widgets(turn))
        self.anchor()
        return self._answers[turn.id]

    async def drop(self, turn: Turn) -> None:
        """Take a turn off the screen."""
        answer = self._answers.pop(turn.id, None)
        if answer is not None:
            children = list(self._turns.children)
            at = children.index(answer)
            await self._turns.remove_children([answer, *children[max(0, at - 1) : at]])

    def answer(self, turn: Turn) -> AnswerView | None:
        return self._answers.get(turn.id)

    def show(self, view: View) -> None:
        self.view = view
        for answer in self._answers.values():
            answer.show(view)

    async def notice(self, widget: Static) -> None:
        """Put something that is no turn at the end."""
        await self._turns.mount(widget)

    async def load_earlier(self) -> None:
        """Mount older turns above; what is in view stays where it is."""
        if not self._first:
            return
        before = self.virtual_size.height
        turns = self._chat.turns[max(0, self._first - WINDOW) : self._first]
        self._first -= len(turns)
        notice = self.query_one(Earlier)
        widgets = [widget for turn in turns for widget in self._widgets(turn)]
        await self._turns.mount_all(widgets, after=notice)
        if self._first:
            notice.update(self._earlier_text())
        else:
            await notice.remove()
        self.call_after_refresh(
            lambda: self.scroll_to(y=self.scroll_y + self.virtual_size.height - before, animate=False, force=True)
        )

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.following = True
        self.post_message(self.Scrolled())
        if new_value <= 0 < old_value and self._first:
            self.call_later(self.load_earlier)

    async def on_earlier_wanted(self) -> None:
        await self.load_earlier()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if self._first and self.scroll_y <= 0:
            self.call_later(self.load_earlier)

    def _widgets(self, turn: Turn) -> list[UserView | AnswerView]:
        answer = AnswerView(turn.answer, self.view, self.decode)
        self._answers[turn.id] = answer
        return [UserView(turn.user, turn.images), answer]

    def _earlier(self) -> Earlier:
        return Earlier(self._earlier_text())

    def _earlier_text(self) -> Content:
        return Content(f"↑ {self._first} earlier turns")

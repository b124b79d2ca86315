"""The conversation: turns near the view as widgets, the others as blank rows of the same height.

What a drawing costs does not depend on how long the conversation is. Follows the end while the user is there, and never
moves the view when they are not.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widget import Widget

from tui.chat import Answer, Chat, Turn
from tui.keys import reading_bindings
from tui.markdown.document import Part
from tui.trace import Decode
from tui.widgets.answer_view import AnswerView, View
from tui.widgets.entries import Entry, Spacer
from tui.widgets.growing import Settled
from tui.widgets.loading import Notice
from tui.widgets.user_view import UserView
from tui.widgets.window import NEAR, edges, entry_at, wanted

SELECTED = 20
"""Screens that stay mounted for the sake of a selection."""


class Turns(Settled, Vertical):
    """Holds the widgets; as tall as the window at least, so that a short conversation begins at the top."""


class Transcript(Settled, VerticalScroll, can_focus=True):
    """Shows a `Chat`."""

    BINDINGS: ClassVar[list[BindingType]] = [*reading_bindings()]

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
        self.model = ""
        """Whose tokens `decode` understands."""
        self.following = True
        """Whether the view stays at the end."""
        self._entries: list[Entry] = []
        self._first = self._last = 0
        """The entries [first, last) are mounted."""
        self._of: dict[str, Entry] = {}
        self._above, self._below = Spacer(), Spacer()
        self._turns = Turns(self._above, self._below, id="turns")
        self._lock = asyncio.Lock()
        self._moving = False
        self._width = 0
        self._at: tuple[Entry, int] | None = None
        """Where the block cursor is: a turn, and a part of its answer, -1 being what the user said."""

    def compose(self) -> ComposeResult:
        yield self._turns

    def on_mount(self) -> None:
        self.anchor()

    # Following --------------------------------------------------------------------------------------------------------

    def anchor(self, anchor: bool = True) -> None:
        self.following = anchor
        super().anchor(anchor)

    def release_anchor(self) -> None:
        """With nothing to scroll there is nothing to hold on to: a later overflow is still followed."""
        if self.max_scroll_y > 0:
            self.following = False
            super().release_anchor()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.following = True
        self.post_message(self.Scrolled())
        self._move_if_near()

    # What it shows ----------------------------------------------------------------------------------------------------

    async def open(self, chat: Chat) -> None:
        """Show another conversation from its end."""
        async with self._lock:
            await self._turns.remove_children([w for entry in self._entries for w in entry.widgets])
            self._entries = [Entry(turn) for turn in chat.turns]
            self._of = {entry.turn.id: entry for entry in self._entries if entry.turn is not None}
            self._first = self._last = len(self._entries)
            self.anchor()
            await self._settle()
        self.anchor()

    async def add(self, turn: Turn) -> AnswerView:
        """Append a turn and follow it."""
        self._of[turn.id] = entry = Entry(turn)
        await self._append(entry)
        assert entry.answer is not None
        return entry.answer

    async def notice(self, widget: Notice) -> None:
        """Put something that is no turn at the end, and go there."""
        await self._append(Entry(notice=widget))

    async def dismiss(self, id: str) -> None:
        """Take a notice off the screen, if it is there."""
        for entry in self._entries:
            if entry.notice is not None and entry.notice.id == id:
                await self._take_out(entry)
                return

    async def drop(self, turn: Turn) -> None:
        """Take a turn off the screen."""
        entry = self._of.pop(turn.id, None)
        if entry is not None:
            await self._take_out(entry)

    def decoder(self, answer: Answer) -> Decode | None:
        """Words for the tokens of an answer; none for those of another model, whose ids mean other words."""
        return self.decode if answer.model in ("", self.model) else None

    def answer(self, turn: Turn) -> AnswerView | None:
        """Its widget; None while it is far from the view."""
        entry = self._of.get(turn.id)
        return entry.answer if entry is not None else None

    def show(self, view: View) -> None:
        """Change the view of every answer; what is not mounted is measured anew when it is."""
        self.view = view
        for entry in self._entries:
            entry.width = 0
            if entry.answer is not None:
                entry.answer.show(view)
        self.call_later(self._rearrange)

    def toggle_thought(self, turn: Turn) -> None:
        entry = self._of.get(turn.id)
        if entry is not None and entry.answer is not None:
            entry.answer.toggle_thought()
        elif entry is not None:
            entry.unfolded = not entry.unfolded

    def show_images(self, turn: Turn) -> None:
        """What a turn's pictures are was found out."""
        entry = self._of.get(turn.id)
        user = next((w for w in entry.widgets if isinstance(w, UserView)), None) if entry is not None else None
        if entry is not None and user is not None and user.show_images(turn.images):
            entry.width = 0
            self.call_later(self._rearrange)

    def toggle_message(self, turn: Turn) -> None:
        """Unfold or fold what the user said."""
        entry = self._of.get(turn.id)
        for view in entry.widgets if entry is not None else ():
            if isinstance(view, UserView):
                view.toggle()

    def on_user_view_folded(self, event: UserView.Folded) -> None:
        for entry in (e for e in self._entries if event.view in e.widgets):
            entry.width = 0
        self.call_later(self._rearrange)

    async def reveal(self, turn: Turn, row: int | None = None) -> None:
        """Bring a turn into view, from its beginning, or from a row of its answer."""
        entry = self._of.get(turn.id)
        if entry is None:
            return
        async with self._lock:
            await self._settle(around=self._entries.index(entry))
            starts = self._starts()
            at = starts[self._entries.index(entry)]
            if row is not None:
                user = next((w for w in entry.widgets if isinstance(w, UserView)), None)
                at += row + (user.rows(self._width) if user is not None else 0)
                if self.scroll_y <= at < self.scroll_y + self.size.height - 1:
                    return
                at -= self.size.height // 3
        self.call_after_refresh(self.scroll_to, y=max(0, at), animate=False, immediate=True)

    # The block cursor -------------------------------------------------------------------------------------------------

    async def step(self, by: int) -> bool:
        """Move the block cursor, from the end where it was nowhere; whether there was somewhere to go."""
        turns = [entry for entry in self._entries if entry.turn is not None]
        if not turns:
            return False
        if self._at is None or self._at[0] not in turns:
            entry, part = turns[-1], -1
            part = len(await self._parts(entry)) - 1
        else:
            entry, part = self._at
            part += by
            at = turns.index(entry)
            if part < -1 and at > 0:
                entry = turns[at - 1]
                part = len(await self._parts(entry)) - 1
            elif part >= len(await self._parts(entry)) and at + 1 < len(turns):
                entry, part = turns[at + 1], -1
        parts = await self._parts(entry)
        await self._point(entry, max(-1, min(part, len(parts) - 1)))
        return True

    @property
    def pointed(self) -> tuple[Turn, Part | None] | None:
        """The turn under the block cursor, and the part of its answer; None is what the user said."""
        if self._at is None or self._at[0].turn is None:
            return None
        entry, index = self._at
        parts = entry.answer.parts() if entry.answer is not None else []
        return self._at[0].turn, parts[index] if 0 <= index < len(parts) else None

    def unpoint(self) -> bool:
        """Take the block cursor off; whether it was there."""
        was, self._at = self._at, None
        if was is not None:
            self._show_point(was[0], None)
        return was is not None

    def on_blur(self) -> None:
        if self.app.screen is self.screen:
            self.unpoint()

    async def _parts(self, entry: Entry) -> list[Part]:
        if entry.answer is None and entry.turn is not None:
            await self.reveal(entry.turn)
        return entry.answer.parts() if entry.answer is not None else []

    async def _point(self, entry: Entry, index: int) -> None:
        self.unpoint()
        self._at = (entry, index)
        parts = await self._parts(entry)
        part = parts[index] if 0 <= index < len(parts) else None
        self._show_point(entry, part)
        if entry.turn is not None:
            self.release_anchor()
            await self.reveal(entry.turn, part.first if part is not None else None)

    def _show_point(self, entry: Entry, part: Part | None) -> None:
        user = next((w for w in entry.widgets if isinstance(w, UserView)), None)
        if user is not None:
            user.set_class(self._at is not None and self._at[0] is entry and part is None, "-at")
        if entry.answer is not None:
            entry.answer.mark(part)

    # The window -------------------------------------------------------------------------------------------------------

    @property
    def mounted(self) -> range:
        """Indexes of the entries that are widgets now."""
        return range(self._first, self._last)

    def _starts(self) -> list[int]:
        """Row at which each entry begins, under the blank row on top."""
        return [1 + start for start in edges([entry.rows for entry in self._entries])]

    def _inner(self) -> int:
        return self._turns.size.width or self.size.width or self.app.size.width

    def _move_if_near(self) -> None:
        """Move the window when the view comes near its edge."""
        near = NEAR * self.size.height
        above = self._first > 0 and self.scroll_y < self._above.rows + near
        end = self.virtual_size.height - self._below.rows
        if not self._moving and (above or (self._last < len(self._entries) and self.scroll_y + 2 * near > end)):
            self._moving = True
            self.call_later(self._rearrange)

    async def _rearrange(self) -> None:
        try:
            async with self._lock:
                await self._settle()
        finally:
            self._moving = False

    async def _append(self, entry: Entry) -> None:
        async with self._lock:
            self._entries.append(entry)
            self.following = True
            await self._settle()
        self.anchor()

    async def _take_out(self, entry: Entry) -> None:
        async with self._lock:
            at = self._entries.index(entry)
            del self._entries[at]
            self._first -= at < self._first
            self._last -= at < self._last
            await self._turns.remove_children(list(entry.widgets))
            entry.widgets.clear()
            await self._settle()

    async def _settle(self, around: int | None = None) -> None:
        """Mount what is near the view, or near an entry; what is in view stays where it is."""
        width, height = self._inner(), self.size.height or self.app.size.height
        starts = self._starts()
        held = entry_at(starts, self.scroll_y) if around is None else around
        into = self.scroll_y - starts[held] if self._entries and around is None else 0
        self._width = width
        for entry in self._entries:
            entry.measure(width)
        first, last = self._first, self._last
        for _ in range(4):  # what is measured for the first time differs from its guess, and the range with it
            heights = [entry.rows for entry in self._entries]
            following = self.following and around is None
            top = sum(heights) - height if following else edges(heights)[held] + into if heights else 0
            found = wanted(heights, top, height)
            fresh = [entry for entry in self._entries[slice(*found)] if not entry.widgets]
            for entry in fresh:
                entry.widgets = self._widgets(entry)
                entry.measure(width)
            first, last = found
            if not fresh:
                break
        await self._mount(*self._with_selection(first, last, height))
        if self._entries and around is None and not self.following:
            self._hold(self._starts()[held] + into)

    def _with_selection(self, first: int, last: int, height: int) -> tuple[int, int]:
        """[first, last) widened to what is selected, which would be lost with its widgets; not across a whole book."""
        selected = self.screen.selections
        held = [i for i, entry in enumerate(self._entries) if any(w in selected for w in entry.widgets)]
        if not held:
            return first, last
        wide = min(first, held[0]), max(last, held[-1] + 1)
        return wide if sum(entry.rows for entry in self._entries[slice(*wide)]) <= SELECTED * height else (first, last)

    async def _mount(self, first: int, last: int) -> None:
        """Make [first, last) the mounted entries."""
        gone = [e for i, e in enumerate(self._entries) if e.widgets and not first <= i < last]
        with self.app.batch_update():
            leaving = [w for e in gone for w in e.widgets if w.parent is not None]
            for entry in gone:
                entry.unfolded = entry.answer.unfolded if entry.answer is not None else False
                if entry.notice is not None and entry.notice.parent is not None:
                    entry.notice = entry.notice.again()
                entry.widgets = []
            self._first, self._last = first, last
            self._space()
            if leaving:
                await self._turns.remove_children(leaving)
            before: list[Widget] = []
            for entry in self._entries[first:last]:
                if not entry.widgets:
                    entry.widgets = self._widgets(entry)
                    entry.measure(self._width)
                for widget in entry.widgets:
                    if widget.parent is None:
                        before.append(widget)
                        continue
                    if before:
                        await self._turns.mount_all(before, before=widget)
                        before = []
            if before:
                await self._turns.mount_all(before, before=self._below)

    def _space(self) -> None:
        heights = [entry.rows for entry in self._entries]
        self._above.stand_for(sum(heights[: self._first]))
        self._below.stand_for(sum(heights[self._last :]))

    def _hold(self, row: float) -> None:
        """Scroll so that nothing in view moves."""
        if round(row) == round(self.scroll_y):
            return
        if row <= self.max_scroll_y:
            self.scroll_to(y=row, animate=False, force=True, immediate=True, release_anchor=False)
        else:
            self.call_after_refresh(
                self.scroll_to, y=row, animate=False, force=True, immediate=True, release_anchor=False
            )

    def _widgets(self, entry: Entry) -> list[UserView | AnswerView | Notice]:
        if entry.turn is None:
            assert entry.notice is not None
            return [entry.notice]
        answer = AnswerView(entry.turn.answer, self.view, self.decoder(entry.turn.answer))
        answer.unfolded = entry.unfolded
        return [UserView(entry.turn.user, entry.turn.images), answer]

    def on_resize(self, event: events.Resize) -> None:
        """Another width is another height for everything."""
        if self._inner() != self._width:
            self.call_after_refresh(self._rearrange)
        else:
            self._move_if_near()

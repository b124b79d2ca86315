"""The conversation: a column of turns and notices, the block cursor over them, and what is selected in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Offset, Region
from textual.message import Message
from textual.selection import SELECT_ALL, Selection
from textual.strip import Strip

from tui.conversation.chat import Answer, Chat, Turn
from tui.keys import reading_bindings
from tui.markdown.document import Part
from tui.widgets.transcript.answer import AnswerView, View
from tui.widgets.transcript.block_cursor import BlockCursor
from tui.widgets.transcript.item_view import EntryView
from tui.widgets.transcript.items import ROWS, Entry
from tui.widgets.transcript.line_view import PAD
from tui.widgets.transcript.message import UserView
from tui.widgets.transcript.thumbnails import is_picture
from tui.widgets.transcript.token_trace import Decode

if TYPE_CHECKING:
    from PIL import Image


class Transcript(EntryView, can_focus=True):
    """Shows a `Chat`."""

    BINDINGS: ClassVar[list[BindingType]] = [*reading_bindings()]

    class Pictured(Message):
        """A turn with pictures came near the view: small ones may be shown under their lines."""

        def __init__(self, turn: Turn) -> None:
            super().__init__()
            self.turn = turn

    class Unpointed(Message):
        """The block cursor went away while the conversation had the keyboard."""

    class CopyWanted(Message):
        """The user wants `text` in the clipboard; it may be empty."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class TurnWanted(Message):
        """The user wants to `edit` a turn, answer it `again`, see its next `branch`, or `inspect` it at `part`."""

        def __init__(self, what: str, turn: Turn, part: Part | None = None) -> None:
            super().__init__()
            self.what, self.turn, self.part = what, turn, part

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = View.SOURCE
        self.decode: Decode | None = None
        self.model = ""
        """Whose tokens `decode` understands."""
        self._cursor = BlockCursor(self.column, self.reveal)

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

    def add_notice(self, text: Content, id: str = "") -> None:
        """Say something that is no turn, at the end, and go there; one with an id is said in its place."""
        if not (id and self.update_notice(id, text)):
            self.column.append(Entry(notice=text, id=id))
            self.anchor()
            self.refresh()

    def update_notice(self, id: str, text: Content) -> bool:
        """Say another text in the place of one that has this id; whether there was one."""
        entry = self._notice(id)
        if entry is not None:
            entry.notice = text
            self.changed(entry)
        return entry is not None

    def has_notice(self, id: str) -> bool:
        """Whether something with this id stands there."""
        return self._notice(id) is not None

    def remove_notice(self, id: str) -> None:
        """Take what has this id off the screen, if it is there."""
        entry = self._notice(id)
        if entry is not None:
            self._take_out(entry)

    def _notice(self, id: str) -> Entry | None:
        return next((entry for entry in self.column if entry.id == id), None)

    def _take_out(self, entry: Entry) -> None:
        if self._cursor.is_in(entry):
            self.unpoint()
        self.column.remove(entry)
        self.settle()
        self.refresh()

    def decoder(self, answer: Answer) -> Decode | None:
        """Words for the tokens of an answer; none for those of another model, whose ids mean other words."""
        return self.decode if answer.model in ("", self.model) else None

    def answer(self, turn: Turn) -> AnswerView | None:
        """Its rows; None while it is far from the view."""
        entry = self.column.of(turn)
        return entry.answer if entry is not None else None

    def materialise(self, entry: Entry) -> None:
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
            self.settle()
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
        self.settle()
        self.refresh()

    def toggle_thought(self, turn: Turn) -> None:
        """Fold or unfold the reasoning."""
        entry = self.column.of(turn)
        if entry is not None and entry.answer is not None:
            entry.answer.toggle_thought()
            self.changed(entry)
        elif entry is not None:
            entry.unfolded = not entry.unfolded

    def toggle_last_thought(self) -> bool:
        """The same for the last answer that has some; whether there was one."""
        entries = reversed(self.column.entries)
        turn = next((e.turn for e in entries if e.turn is not None and e.turn.answer.thought_ranges), None)
        if turn is not None:
            self.toggle_thought(turn)
        return turn is not None

    def toggle_message(self, turn: Turn) -> None:
        """Unfold or fold what the user said."""
        entry = self.column.of(turn)
        if entry is not None and entry.user is not None and entry.user.toggle():
            self.changed(entry)

    def show_images(self, turn: Turn) -> None:
        """What a turn's pictures are was found out."""
        entry = self.column.of(turn)
        if entry is not None and entry.user is not None and entry.user.show_images(turn.images):
            self.changed(entry)
            self._picture(turn)

    def _picture(self, turn: Turn) -> None:
        self.post_message(self.Pictured(turn))

    def show_thumbs(self, turn: Turn, thumbs: tuple[Image.Image | None, ...]) -> None:
        """Small pictures of those that a message names."""
        entry = self.column.of(turn)
        if entry is not None and entry.user is not None and entry.user.show_thumbs(thumbs):
            self.changed(entry)

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

    # The block cursor -------------------------------------------------------------------------------------------------

    @property
    def pointed(self) -> tuple[Turn, Part | None] | None:
        """The turn under the block cursor, and the part of its answer; None is what the user said."""
        return self._cursor.at

    def step(self, by: int) -> bool:
        """Move the block cursor; whether there was somewhere to go."""
        self.refresh()
        return self._cursor.step(by)

    def unpoint(self) -> bool:
        """Take the block cursor off; whether it was there."""
        was = self._cursor.leave()
        if was:
            self.refresh()
            if self.has_focus:
                self.post_message(self.Unpointed())
        return was

    def on_blur(self) -> None:
        if self.app.screen is self.screen:
            self.unpoint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without the block cursor its keys are no keys of it: a letter is text, and goes where text goes."""
        return self.pointed is not None if action.startswith("block") else super().check_action(action, parameters)

    def action_block(self, by: int) -> None:
        self.step(by)

    def action_block_copy(self, whole: bool = False) -> None:
        assert self.pointed is not None
        turn, part = self.pointed
        view = self.answer(turn)
        block = view.source(part) if view is not None and part is not None else turn.user
        self.post_message(self.CopyWanted(turn.answer.reply if whole else block))

    def action_block_fold(self) -> None:
        assert self.pointed is not None
        turn, part = self.pointed
        if part is None:
            self.toggle_message(turn)
        else:
            self.toggle_thought(turn)

    def action_block_do(self, what: str) -> None:
        assert self.pointed is not None
        self.post_message(self.TurnWanted(what, *self.pointed))

    # Drawing ----------------------------------------------------------------------------------------------------------

    def mark(self, entry: Entry, row: int, strip: Strip) -> Strip:
        """A row with the block cursor and the selection on it."""
        if self._cursor.covers(entry, row):
            strip = self.marked(strip, "pointed")
        selection = self.screen.selections.get(self)
        span = selection.get_span(entry.key(row)) if selection is not None else None
        if span is None or row >= entry.said:
            return strip
        end = len(strip.text.rstrip())
        return self.marked(strip, "selection", max(PAD, span[0]), end if span[1] == -1 else min(end, span[1]))

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
            self.materialise(entry)
            entry.measure(self.column.width)
        out = ""
        for row in range(entry.said):
            span = selection.get_span(entry.key(row))
            if span is not None and not (entry.notice is None and is_picture(entry.line(row))):
                line = entry.line(row) if entry.notice is None else None
                text = line.text if line is not None else self.drawn(entry, row).text[PAD:].rstrip()
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

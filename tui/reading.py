"""The block cursor: over messages and the blocks of answers, with what can be done there. A mixin of the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui.chat import Turn
from tui.hindsight import Hindsight
from tui.markdown.document import Part
from tui.screens.inspector import InspectorScreen

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller
    from tui.widgets.composer import Composer
    from tui.widgets.transcript import Transcript

    Base = App[int]
else:
    Base = object


class Reading(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        transcript: Transcript
        composer: Composer

        def say(self, text: str, severity: Any = "information") -> None: ...
        def copy_text(self, text: str) -> None: ...
        async def answer_again(self, text: str | None = None, turn: Turn | None = None) -> str | None: ...
        async def step_branch(self, words: str, turn: Turn | None = None) -> str | None: ...

    editing: Turn | None = None
    """The turn whose message is being written anew."""

    async def action_block(self, by: int) -> None:
        if not self.transcript.step(by):
            self.say("There is nothing to point at yet.")
            return
        self.screen.set_focus(self.transcript, scroll_visible=False)  # at once: the next key is for the block cursor

    def leave_blocks(self) -> bool:
        """Take the block cursor off, and forget an edit that was begun; whether there was one."""
        editing, self.editing = self.editing, None
        if editing is not None:
            self.composer.clear_sent()
        if self.transcript.unpoint():
            self.composer.focus()
            return True
        return editing is not None

    def _pointed(self) -> tuple[Turn, Part | None] | None:
        pointed = self.transcript.pointed
        if pointed is None:
            self.say("Alt+↑ puts the cursor on a block first.")
        return pointed

    def action_block_copy(self, whole: bool = False) -> None:
        pointed = self._pointed()
        if pointed is None:
            return
        turn, part = pointed
        view = self.transcript.answer(turn)
        if whole:
            text = turn.answer.reply
        else:
            text = view.source(part) if view is not None and part is not None else turn.user
        if text:
            self.copy_text(text)
        self.say(f"Copied {len(text)} characters." if text else "There is nothing to copy here.")

    def action_block_fold(self) -> None:
        pointed = self._pointed()
        if pointed is not None and pointed[1] is None:
            self.transcript.toggle_message(pointed[0])
        elif pointed is not None:
            self.transcript.toggle_thought(pointed[0])

    async def action_block_again(self) -> None:
        pointed = self._pointed()
        if pointed is not None:
            self._told(await self.answer_again(turn=pointed[0]))

    async def action_block_branch(self) -> None:
        pointed = self._pointed()
        if pointed is not None:
            self._told(await self.step_branch("next", pointed[0]))

    def action_block_edit(self) -> None:
        """The message of the turn in the composer; sending it puts it in the place of that turn."""
        pointed = self._pointed()
        if pointed is None:
            return
        if self.controller.busy:
            self.say("An answer is under way; Esc stops it.", "warning")
            return
        self.transcript.unpoint()
        self.editing = pointed[0]
        self.composer.load_text(pointed[0].user)
        self.composer.move_cursor(self.composer.document.end)
        self.composer.focus()
        self.say("Enter puts this in the place of that message, as a branch; Esc leaves it as it was.")

    async def send_edited(self, text: str) -> bool:
        """Whether `text` was an edited message, which is then answered in its old place."""
        turn, self.editing = self.editing, None
        if turn is None or turn not in self.controller.chat.turns:
            return False
        self._told(await self.answer_again(text, turn))
        return True

    def action_block_inspect(self) -> None:
        pointed = self._pointed()
        if pointed is None:
            return
        turn, part = pointed
        start = turn.answer.reply_ranges[0][0] if turn.answer.thought_ranges and turn.answer.reply_ranges else 0
        self.inspect(turn, turn.answer.span_at(start + part.start) if part is not None and turn.answer.spans else None)

    def action_inspect(self) -> None:
        """Inspect the answer under the block cursor, else the last one."""
        if self.transcript.pointed is not None:
            self.action_block_inspect()
            return
        turn = next((t for t in reversed(self.controller.chat.turns) if t.answer.spans), None)
        if turn is None:
            self.say("There is no answer to inspect yet.")
        else:
            self.inspect(turn)

    def inspect(self, turn: Turn, index: int | None = None) -> None:
        if not turn.answer.spans:
            self.say("This answer has no token records.")
            return
        hindsight = Hindsight(self.controller, turn)
        self.push_screen(InspectorScreen(turn.answer, self.transcript.decoder(turn.answer), hindsight, index))

    def _told(self, text: str | None) -> None:
        if text:
            self.say(text)

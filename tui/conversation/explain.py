"""What the model and the drafter gave each token of an answer, computed again on demand. No widgets.

Nothing is guessed: where the tokens before an answer cannot be had exactly as they were, there is a reason instead of a
number. `look` may wait for the model and belongs on a worker thread; results are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.chat.prompt import build_request
from engine.types import Round
from tui.conversation.chat import Turn, checksum
from tui.conversation.session import ChatSession

if TYPE_CHECKING:
    from engine.diagnostics.explain_round import Examination


class Explainer:
    """Looks at the rounds of one answer."""

    def __init__(self, session: ChatSession, turn: Turn) -> None:
        self._session = session
        self._turn = turn
        self._ids: Sequence[int] = ()
        self._seen: dict[int, Examination] = {}

    def known(self, round_: Round) -> Examination | None:
        return self._seen.get(round_.index)

    def obstacle(self) -> str:
        """Why nothing can be computed just now; empty when it can."""
        engine, answer = self._session.engine, self._turn.answer
        if engine is None:
            return "no model is loaded"
        if not hasattr(engine, "run_exclusive"):
            return "this engine cannot look again"
        if answer.model != engine.spec.name:
            return f"the answer is from {answer.model or 'another model'}"
        if answer.asked is None:
            return "what this answer was asked with was not recorded"
        if answer.asked.pictures:
            return "the prompt has pictures"
        if self._session.busy:
            return "computed when no answer is under way"
        return ""

    def look(self, round_: Round) -> Examination | str:
        """The round again, or why not. Waits for the model."""
        found = self._seen.get(round_.index)
        if found is not None:
            return found
        reason = self.obstacle() or self._prompt()
        if reason:
            return reason
        from engine.diagnostics.explain_round import examine

        engine: Any = self._session.engine
        kept = self._turn.answer.asked
        assert kept is not None
        before = [*self._ids]
        for earlier in self._turn.answer.rounds:
            if earlier.index < round_.index:
                before += earlier.tokens
        if len(before) != round_.start:
            return "the records of this answer have a gap"
        found = self._seen[round_.index] = examine(engine, before, len(self._ids), round_, kept.sampling)
        return found

    def _prompt(self) -> str:
        """Have the prompt's ids; why that cannot be."""
        if len(self._ids):
            return ""
        kept, engine = self._turn.answer.asked, self._session.engine
        assert kept is not None
        assert engine is not None
        ids: Sequence[int] = kept.ids
        if not len(ids):
            chat = self._session.chat
            if self._turn not in chat.turns:
                return "the chat was left"
            messages = chat.messages(chat.turns.index(self._turn))
            ids = build_request(engine, messages, self._session.config).request.prompt
        if checksum(ids) != kept.checksum:
            return "what stood before this answer has changed since"
        self._ids = ids
        return ""

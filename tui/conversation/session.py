"""The conversation under way: what is sent, what comes back, which drafter works. No widgets.

Runs on the screen's thread except for `submit`, which a worker thread calls since templates and tokenising take time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.chat.images import attached, described
from engine.chat.prompt import build_request
from engine.config import Config
from engine.errors import did_you_mean
from engine.types import Event, Failed, Finished, Prefilled, Request, Round
from tui.conversation.chat import Chat, Status, Turn, asked
from tui.conversation.images import Album
from tui.conversation.stats import Tally
from tui.engine_api import DrafterLike, EngineLike, Listener, TicketLike

log = logging.getLogger("dspark.tui")


class ChatSession:
    """Owns the chat and the request under way."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        """What was decided, without what the model recommends."""
        self.start = self.config
        """As the program was started, and as the file was changed since; what presets are laid over."""
        self.preset = ""
        self.chat = Chat()
        self.album = Album()
        self.engine: EngineLike | None = None
        self.turn: Turn | None = None
        """The one being answered."""
        self.queued: str | None = None
        """Sent while another was being answered, or before the model was loaded."""
        self.logprobs: int | None = None
        """Alternatives recorded with each token; None records nothing."""
        self.totals = Tally()
        self.last = Tally()
        self.prefilled: Prefilled | None = None
        self._ticket: TicketLike | None = None
        self._cancelled = False

    @property
    def busy(self) -> bool:
        return self.turn is not None

    @property
    def effective(self) -> Config:
        """The settings of the next answer: what was decided, and for the rest what the model recommends."""
        return self.config.under(getattr(self.engine, "generation", {}))

    # Sending ----------------------------------------------------------------------------------------------------------

    def begin(self, text: str) -> Turn:
        """Append a turn; the caller then runs `submit` on a worker thread."""
        turn = Turn(self.album.join(text))
        turn.images = tuple(str(p) for p in attached(turn.user) if isinstance(p, Path))
        turn.answer.seed = self.config.seed
        turn.answer.model = self.engine.spec.name if self.engine is not None else ""
        self.chat.turns.append(turn)
        self._start(turn)
        return turn

    def _start(self, turn: Turn) -> None:
        self.turn, self._ticket, self._cancelled = turn, None, False
        self.last = turn.answer.tally

    def rewind(self, turn: Turn | None = None) -> list[Turn] | str:
        """Take the last turn, or `turn` and what followed it, off the chat; those turns, or why not. A store keeps them
        as a branch."""
        turns = self.chat.turns
        if self.engine is None or not turns:
            return "There is nothing to answer again."
        if self.busy:
            return "An answer is under way; Esc stops it."
        at = turns.index(turn) if turn is not None and turn in turns else len(turns) - 1
        gone = turns[at:]
        del turns[at:]
        return gone

    def submit(self, turn: Turn, listener: Listener) -> None:
        """From messages to a request. Whatever goes wrong arrives at `listener` as Failed."""
        engine = self.engine
        assert engine is not None
        try:
            messages, pictures = self.album.place(self.chat.messages(), engine.spec.name, engine.spec.vision)
            built = build_request(
                *(engine, messages, self.config, pictures),
                logprobs=self.logprobs,
                conversation=self.chat.id,
                id=turn.id,
            )
            own = len(pictures) - sum(isinstance(p, Path) for p in attached(turn.user))
            turn.images = tuple(described(p, n) for p, n in list(zip(pictures, built.rows, strict=True))[own:])
            turn.answer.asked = asked(built.request)
            if engine.format.thinks:
                turn.answer.splitter = built.splitter
            self._ticket = engine.submit(built.request, listener)
        except Exception as error:  # the edge of a request: the screen says it as a sentence
            log.exception("a request could not be made")
            listener(Failed(turn.id, error))
            return
        if self._cancelled:
            self._ticket.cancel()

    def question(self, text: str = "") -> Request:
        """A request for `text` in this conversation, which stays as it is; without text for its last message."""
        engine = self.engine
        assert engine is not None
        chat = replace(self.chat, turns=[*self.chat.turns, Turn(text)]) if text else self.chat
        messages, pictures = self.album.place(chat.messages(), engine.spec.name, engine.spec.vision)
        return build_request(engine, messages, self.config, pictures).request

    def cancel(self) -> bool:
        """Stop at the next round; whether there was something to stop."""
        if self.turn is None:
            return False
        self._cancelled = True
        if self._ticket is not None:
            self._ticket.cancel()
        return True

    def leave(self) -> Turn | None:
        """Give up the answer under way, and keep what is there; its turn."""
        self.cancel()
        turn = self.abandon("The chat was left.")
        if turn is not None:
            turn.answer.status, turn.answer.error = Status.STOPPED, ""  # nothing went wrong
        return turn

    def show(self, chat: Chat) -> None:
        """Go on with another conversation; what is under way in this one must have ended."""
        self.chat, self.queued, self.album = chat, None, Album()
        self.last = chat.turns[-1].answer.tally if chat.turns else Tally()
        self.prefilled = chat.turns[-1].answer.prefilled if chat.turns else None

    # Receiving --------------------------------------------------------------------------------------------------------

    def apply(self, event: Event, show: Callable[[str, int], None] | None = None) -> Turn | None:
        """Take one event; returns the turn that it belongs to."""
        turn = self.turn
        if turn is None or event.request != turn.id:
            return None
        for text, code in turn.answer.take(event):
            if show is not None:
                show(text, code)
        match event:
            case Round():
                self.totals.add(event)
            case Prefilled():
                self.prefilled = event
            case Finished() | Failed():
                self.turn = self._ticket = None
            case _:
                pass
        return turn

    def abandon(self, message: str) -> Turn | None:
        """The engine is gone: what is under way failed."""
        turn = self.turn
        if turn is not None:
            self.apply(Failed(turn.id, RuntimeError(message)))
        return turn

    # Drafters ---------------------------------------------------------------------------------------------------------

    @property
    def drafters(self) -> list[DrafterLike]:
        return list(self.engine.drafters) if self.engine is not None else []

    @property
    def drafter(self) -> str:
        return self.engine.drafter if self.engine is not None else ""

    @property
    def drafter_source(self) -> str:
        """Source of the current drafter's tokens."""
        return next((str(d.source) for d in self.drafters if d.name == self.drafter), "draft")

    def use(self, name: str) -> str:
        """Draft with `name` from the next round on. Returns why not, or an empty string."""
        engine = self.engine
        if engine is None:
            return "The model is not loaded yet."
        found = next((d for d in engine.drafters if d.name == name), None)
        if found is None:
            known = [d.name for d in engine.drafters]
            return f"There is no drafter {name}; this model has {', '.join(known)}.{did_you_mean(name, known)}"
        if not found.available:
            return f"The drafter {name} cannot run: {found.reason or 'no reason given'}."
        engine.drafter = name
        if self._ticket is not None:
            self._ticket.use(drafter=name)
        return ""

    def next_drafter(self) -> str | None:
        """Step to the next one that can run; its name, or None when there is no other."""
        able = [d.name for d in self.drafters if d.available]
        if len(able) < 2:
            return None
        at = able.index(self.drafter) if self.drafter in able else -1
        name = able[(at + 1) % len(able)]
        return None if self.use(name) else name

    # Figures ----------------------------------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Tokens of the context in use after the last turn."""
        answer = next((t.answer for t in reversed(self.chat.turns) if t.answer.prefilled is not None), None)
        if answer is None or answer.prefilled is None:
            return 0
        return answer.prefilled.tokens + answer.tally.tokens

    @property
    def failed(self) -> Turn | None:
        """The last turn, when it failed."""
        turns = self.chat.turns
        return turns[-1] if turns and turns[-1].answer.status is Status.FAILED else None

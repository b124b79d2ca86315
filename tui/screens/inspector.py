"""Token by token: where each came from, its round, its place in the block, p, q, and what was turned down there.

What the round records hold is shown at once. p of the model and q of the drafter are computed again from the tokens
before, when the cursor rests; a number that was not computed or recorded is not shown, and the reason is.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from engine.chat.terminal_safe import clean
from engine.types import Round
from tui.conversation.chat import Answer
from tui.provenance import NAMES
from tui.screens.overlay import Overlay
from tui.widgets.transcript.token_trace import Decode

if TYPE_CHECKING:
    from engine.diagnostics.explain_round import Chance, Examination
    from tui.conversation.explain import Explainer

log = logging.getLogger("dspark.tui")

REST = 0.3
"""Seconds that the cursor must rest before a round is computed again."""
AROUND = 400
"""Characters shown on either side of the token."""


class InspectorScreen(Overlay[None]):
    """A cursor over the tokens of one answer."""

    DEFAULT_CSS = """
    InspectorScreen { align: center middle; background: $background 60%; }
    InspectorScreen > Vertical {
        width: 100; max-width: 96%; height: 90%; padding: 0 1; background: $surface; border: round $primary;
    }
    InspectorScreen VerticalScroll { height: 1fr; }
    InspectorScreen #facts { height: auto; min-height: 11; border-top: solid $panel; padding-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", show=False, priority=True),
        Binding("right", "move(1)", show=False, priority=True),
        Binding("up", "round(-1)", show=False, priority=True),
        Binding("down", "round(1)", show=False, priority=True),
        Binding("home", "move(-1000000)", show=False, priority=True),
        Binding("end", "move(1000000)", show=False, priority=True),
    ]

    def __init__(
        self, answer: Answer, decode: Decode | None, explainer: Explainer | None = None, index: int | None = None
    ) -> None:
        super().__init__()
        self._answer = answer
        self._decode = decode
        self._explainer = explainer
        self._note = ""
        self._rests: Timer | None = None
        last = max(0, len(answer.spans) - 1)
        self.index = last if index is None else max(0, min(last, index))

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Tokens   ← → token · ↑ ↓ round · Esc leaves"
            with VerticalScroll():
                yield Static(id="text")
            yield Static(id="facts")

    def on_mount(self) -> None:
        self._draw()

    def action_move(self, by: int) -> None:
        self.index = max(0, min(len(self._answer.spans) - 1, self.index + by))
        self._draw()

    def action_round(self, by: int) -> None:
        """To the first token of the round before or after."""
        spans = self._answer.spans
        here = spans[self.index].round
        firsts = [i for i, s in enumerate(spans) if i == 0 or spans[i - 1].round != s.round]
        found = [i for i in firsts if (spans[i].round > here if by > 0 else i < self.index)]
        if found:
            self.index = found[0] if by > 0 else found[-1]
            self._draw()

    def _draw(self) -> None:
        self.query_one("#text", Static).update(text_around(self._answer, self.index))
        round = round_of(self._answer, self.index)
        found = self._explainer.known(round) if self._explainer is not None and round is not None else None
        if found is None and self._explainer is not None and round is not None:
            self._note = self._explainer.obstacle() or "computing …"
            if self._rests is not None:
                self._rests.stop()
            self._rests = self.set_timer(REST, lambda: self._look(round)) if self._note == "computing …" else None
        self._show(found)

    def _show(self, found: Examination | None) -> None:
        shown = facts(self._answer, self.index, self._decode, found, self._note)
        self.query_one("#facts", Static).update(shown)

    @work(thread=True, group="look", exclusive=True, exit_on_error=False)
    def _look(self, round: Round) -> None:
        assert self._explainer is not None
        try:
            found = self._explainer.look(round)
        except Exception as error:  # the edge of a look: the screen says it as a sentence
            log.exception("a round could not be examined")
            found = str(error) or type(error).__name__
        self.app.call_from_thread(self._looked, round, found)

    def _looked(self, round: Round, found: Examination | str) -> None:
        if self.is_attached and round is round_of(self._answer, self.index):
            self._note = found if isinstance(found, str) else ""
            self._show(None if isinstance(found, str) else found)


def text_around(answer: Answer, index: int) -> Content:
    """The tokens near the cursor in their colours, the cursor reversed."""
    spans = answer.spans
    if not spans:
        return Content("This answer has no token records.")
    here = spans[index].end
    parts: list[tuple[str, str]] = []
    for i, span in enumerate(spans):
        if abs(span.end - here) <= AROUND:
            style = f"$source-{NAMES[span.code]}"
            text = answer.span_text(i)
            if i == index:
                parts.append((text.replace("\n", "⏎\n") or "·", style + " reverse"))
            elif text:
                parts.append((text, style))
    return Content.assemble(*parts)


def round_of(answer: Answer, index: int) -> Round | None:
    """The round that committed a token."""
    if not answer.spans:
        return None
    return next((r for r in answer.rounds if r.index == answer.spans[index].round), None)


def facts(
    answer: Answer, index: int, decode: Decode | None, found: Examination | None = None, note: str = ""
) -> Content:
    """What is known of one token."""
    if not answer.spans:
        return Content("")
    span, round = answer.spans[index], round_of(answer, index)
    rows: list[tuple[str, str]] = [("token", f"{answer.span_text(index)!r}  id {span.token}  position {span.position}")]
    rows.append(("source", _source(span.code, round, span.position)))
    if round is not None:
        k = span.position - round.start
        drafted = f"{len(round.drafted)} drafted by {round.drafter}, {round.accepted} accepted"
        rows.append(("round", f"{round.index}: {drafted if round.drafted else 'nothing was drafted'}"))
        rows.append(("place", f"{k + 1} of {len(round.tokens)} committed; draft length allowed {round.cap}"))
        rows.append(("turned down", _rejected(round, decode)))
        rows.append(
            ("time", f"draft {round.draft_ms:.1f} · verify {round.verify_ms:.1f} · rest {round.host_ms:.1f} ms")
        )
        rows += _computed(found, k, decode) if found is not None else _recorded(round, k, decode, note)
    return Content("\n").join(Content.assemble((f"{name:<12}", "bold"), clean(value)) for name, value in rows)


def _source(code: int, round: Round | None, position: int) -> str:
    name = NAMES[code]
    if name != "target" or round is None:
        return f"{name}: proposed, and accepted by the model"
    if not round.drafted:
        return "target: a plain step" if round.index else "target: the first token, from the prompt"
    if round.accepted == len(round.drafted):
        return "target: the bonus after a block that was accepted in full"
    return "target: in the place of the draft that was turned down"


def _rejected(round: Round, decode: Decode | None) -> str:
    turned_down = round.drafted[round.accepted :]
    if not turned_down:
        return "nothing"
    words = [repr(decode((token,))) if decode is not None else str(token) for token in turned_down]
    return ", ".join(words) + ("  (only the first was judged)" if len(words) > 1 else "")


def _word(token: int, decode: Decode | None) -> str:
    return repr(decode((token,))) if decode is not None else str(token)


def _computed(found: Examination, k: int, decode: Decode | None) -> list[tuple[str, str]]:
    """From a fresh forward over the same tokens."""
    if k >= len(found.places):
        return []
    place = found.places[k]
    chosen, draft = place.chosen, place.draft
    rows = [("p", _p_of(chosen))]
    if draft is not None and draft.token != chosen.token:
        rows.append(("draft here", f"{_word(draft.token, decode)}  p {_p_of(draft)}"))
    if draft is not None:
        rows.append(("q", _q_of(found, draft, place.confidence)))
    best = " · ".join(
        f"{_word(c.token, decode)} {c.p:.3f}" + (f" q {c.q:.3f}" if c.q is not None and not found.copied else "")
        for c in place.best
    )
    rows.append(("best", best))
    return rows


def _p_of(chance: Chance) -> str:
    return f"{chance.p:.4f}" + ("" if chance.law is None else f"  ({chance.law:.4f} under the sampling)")


def _q_of(found: Examination, draft: Chance, confidence: float | None) -> str:
    if found.copied:
        return "1: copied from the text"
    if draft.q is None:
        return found.note or "none"
    return f"{draft.q:.4f}" + ("" if confidence is None else f"  confidence {confidence:.3f}")


def _recorded(round: Round, k: int, decode: Decode | None, note: str) -> list[tuple[str, str]]:
    """What the round itself carries, and why there is no more."""
    if k >= len(round.logprobs):
        return [("p, q", note or "not recorded; /set logprobs 5 records p from the next answer on")]
    kept = round.logprobs[k]
    best = " · ".join(f"{_word(token, decode)} {math.exp(value):.3f}" for token, value in kept.top)
    rows = [("p", f"{math.exp(kept.logprob):.4f}, recorded"), ("best", best or "not recorded")]
    return [*rows, ("q", note)] if note else rows

"""Token by token: where each came from, its round, its place in the block, and what was turned down there.

Everything shown is in the round records of the answer; probabilities are shown when the rounds carry them.
"""

from __future__ import annotations

import math
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from engine.core import Round
from engine.sanitize import clean
from tui.chat import Answer
from tui.provenance import NAMES
from tui.trace import Decode

AROUND = 400
"""Characters shown on either side of the token."""


class InspectorScreen(ModalScreen[None]):
    """A cursor over the tokens of one answer."""

    DEFAULT_CSS = """
    InspectorScreen { align: center middle; background: $background 60%; }
    InspectorScreen > Vertical {
        width: 100; max-width: 96%; height: 90%; padding: 0 1; background: $surface; border: round $primary;
    }
    InspectorScreen VerticalScroll { height: 1fr; }
    InspectorScreen #facts { height: auto; min-height: 9; border-top: solid $panel; padding-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", show=False, priority=True),
        Binding("right", "move(1)", show=False, priority=True),
        Binding("up", "round(-1)", show=False, priority=True),
        Binding("down", "round(1)", show=False, priority=True),
        Binding("home", "move(-1000000)", show=False, priority=True),
        Binding("end", "move(1000000)", show=False, priority=True),
    ]

    def __init__(self, answer: Answer, decode: Decode | None) -> None:
        super().__init__()
        self._answer = answer
        self._decode = decode
        self.index = max(0, len(answer.spans) - 1)

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
        self.query_one("#facts", Static).update(facts(self._answer, self.index, self._decode))


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


def facts(answer: Answer, index: int, decode: Decode | None) -> Content:
    """What is known of one token."""
    if not answer.spans:
        return Content("")
    span = answer.spans[index]
    round = next((r for r in answer.rounds if r.index == span.round), None)
    rows: list[tuple[str, str]] = [("token", f"{answer.span_text(index)!r}  id {span.token}  position {span.position}")]
    rows.append(("source", _source(span.code, round, span.position)))
    if round is not None:
        k = span.position - round.start
        rows.append(
            ("round", f"{round.index}: {len(round.drafted)} drafted by {round.drafter}, {round.accepted} accepted")
        )
        rows.append(("place", f"{k + 1} of {len(round.tokens)} committed; draft length allowed {round.cap}"))
        rows.append(("turned down", _rejected(round, decode)))
        rows.append(
            ("time", f"draft {round.draft_ms:.1f} · verify {round.verify_ms:.1f} · rest {round.host_ms:.1f} ms")
        )
        rows += _probabilities(round, k, decode)
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


def _probabilities(round: Round, k: int, decode: Decode | None) -> list[tuple[str, str]]:
    if k >= len(round.logprobs):
        return [("p", "not recorded; /set logprobs 5 records it from the next answer on")]
    found = round.logprobs[k]
    best = ", ".join(
        f"{decode((token,)) if decode is not None else token!r} {math.exp(value):.3f}" for token, value in found.top
    )
    return [("p", f"{math.exp(found.logprob):.4f}"), ("best", best or "not recorded")]

"""A side panel as data: a title, and functions from figures to text, small and full-screen; and the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from textual.content import Content

from engine.types import Prefilled
from tui.conversation.chat import Answer
from tui.conversation.session import ChatSession
from tui.conversation.stats import Tally
from tui.engine_api import DrafterLike


@dataclass(frozen=True, slots=True)
class Figures:
    """All that panels draw from."""

    turn: Tally = field(default_factory=Tally)
    """The answer under way, or the last one."""
    session: Tally = field(default_factory=Tally)
    """All answers since the model was loaded."""
    prefilled: Prefilled | None = None
    drafters: Sequence[DrafterLike] = ()
    drafter: str = "none"
    cache: Any = None
    """The prefix cache's statistics, when the engine gives them."""
    calibration: Any = None
    """The calibration's view, when there is one."""
    answers: Sequence[Answer] = ()
    """All of the conversation, for the comparison of drafters."""


def figures_of(session: ChatSession, calibration: Any) -> Figures:
    """As the session is now."""
    return Figures(
        turn=session.last,
        session=session.totals,
        prefilled=session.prefilled,
        drafters=tuple(session.drafters),
        drafter=session.drafter or "none",
        cache=getattr(session.engine, "cache_stats", None),
        calibration=calibration,
        answers=tuple(turn.answer for turn in session.chat.turns),
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `draw(figures, width)` never fails on missing figures: it says that they are missing."""

    id: str
    title: str
    draw: Callable[[Figures, int], Content]
    hint: str = ""
    """Beside the title."""
    chart: Callable[[Figures, int, int], Content] | None = None
    """What the maximised panel shows below its text, from the same figures; None where the text is all."""
    compact: bool = False
    """Whether it stays in the compact side bar."""


def lines(*parts: Content | str) -> Content:
    """Rows under each other."""
    return Content("\n").join(part if isinstance(part, Content) else Content(part) for part in parts)


def dim(text: str) -> Content:
    return Content.styled(text, "$faint")


def row(label: str, value: str, style: str = "bold") -> Content:
    """`label   value`, the value emphasised."""
    return Content.assemble(f"{label:<12}", (value, style))

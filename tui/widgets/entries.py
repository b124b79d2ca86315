"""What a conversation on the screen is made of: entries, mounted or not, and the blank rows that stand for others."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.strip import Strip
from textual.widget import Widget

from tui.chat import Turn
from tui.widgets.answer_view import AnswerView
from tui.widgets.loading import Notice
from tui.widgets.user_view import UserView
from tui.widgets.window import rough_rows


class Spacer(Widget):
    """Stands for entries that are not mounted."""

    DEFAULT_CSS = "Spacer { height: 0; }"
    rows = 0

    def stand_for(self, rows: int) -> None:
        if rows != self.rows:
            self.rows = rows
            self.styles.height = rows

    def render_line(self, y: int) -> Strip:
        return Strip.blank(self.size.width, self.rich_style)


@dataclass(slots=True, eq=False)
class Entry:
    """A turn, or something that was said beside the conversation."""

    turn: Turn | None = None
    notice: Notice | None = None
    rows: int = 0
    """Height, the blank row after it included; exact when `width` is the width of now."""
    width: int = 0
    """The width for which `rows` was measured; 0: never."""
    unfolded: bool = False
    widgets: list[UserView | AnswerView | Notice] = field(default_factory=list)
    """Empty while it is not mounted."""

    @property
    def answer(self) -> AnswerView | None:
        return next((w for w in self.widgets if isinstance(w, AnswerView)), None)

    def measure(self, width: int) -> None:
        """Exact for what has widgets; what was never measured at this width gets a guess."""
        if self.widgets:
            self.rows, self.width = sum(w.rows(width) for w in self.widgets), width
        elif self.width != width and self.turn is not None:
            said, answer = self.turn.user, self.turn.answer
            self.rows = rough_rows(said, width) + rough_rows(answer.text, width) + 2 + 3

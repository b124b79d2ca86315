"""All drafters of this model: the current one marked, those that cannot run with the reason, those that draft worse
than they should with what is wrong."""

from __future__ import annotations

from textual.content import Content

from engine.chat.terminal_safe import one_line
from tui.conversation.compare import table
from tui.widgets.panels.base import Figures, Panel, dim, lines


def draw(figures: Figures, width: int) -> Content:
    if not figures.drafters:
        return dim("no model is loaded")
    rows = []
    for number, drafter in enumerate(figures.drafters, 1):
        current = drafter.name == figures.drafter
        mark = "›" if current else " "
        name = one_line(drafter.name)
        if drafter.available:
            detail = (f": {one_line(drafter.detail)}", "$warning") if drafter.detail else ""
            row = Content.assemble(f"{mark} {number} ", (name, "bold" if current else ""), detail)
            rows.append(row.truncate(width, ellipsis=True))
        else:
            text = f"{mark} {number} {name}: {one_line(drafter.reason) or 'not available'}"
            rows.append(Content.styled(text, "$faint").truncate(width, ellipsis=True))
    return lines(*rows)


def chart(figures: Figures, width: int, height: int) -> Content:
    """Every drafter of this conversation, compared."""
    plain = float(getattr(figures.calibration, "plain", 0.0) or 0.0)
    return lines(dim("in this conversation"), table(figures.answers, plain))


PANEL = Panel("drafters", "Drafters", draw, "Shift+Tab", chart, compact=True)

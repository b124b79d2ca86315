"""How much of what is proposed survives, per round."""

from __future__ import annotations

from textual.content import Content

from engine.types import Source
from tui.conversation.stats import moving, spark
from tui.widgets.block_charts import columns
from tui.widgets.panels.base import Figures, Panel, dim, lines


def draw(figures: Figures, width: int) -> Content:
    turn = figures.turn
    if turn.acceptance is None:
        if not figures.drafters:
            return dim("no model is loaded")
        return dim("no round has proposed anything yet" if figures.drafter != "none" else "drafting is off (Shift+Tab)")
    head = Content.assemble((f"{turn.acceptance:.2f}", "bold"), f"  moving {turn.ema or 0:.2f}")
    mostly = max((Source.DRAFT, Source.LOOKUP), key=lambda source: turn.by_source[source])
    body = Content.styled(spark(turn.rates, width, 1.0), f"$source-{mostly}")
    return lines(head, body, f"per round {turn.per_round or 0:.1f} tok · rounds {turn.rounds}")


def chart(figures: Figures, width: int, height: int) -> Content:
    """Each drafting round of the answer, and the moving average over them."""
    rates = list(figures.turn.rates)
    mostly = max((Source.DRAFT, Source.LOOKUP), key=lambda source: figures.turn.by_source[source])
    return lines(
        dim("share accepted of each drafting round, newest right · dots: moving average"),
        columns(rates, width, height - 1, top=1.0, style=f"$source-{mostly}", line=moving(rates)),
    )


PANEL = Panel("acceptance", "Acceptance", draw, chart=chart, compact=True)

"""How much of what is proposed survives, per round."""

from __future__ import annotations

from textual.content import Content

from engine.core import Source
from tui.panels import Figures, Panel, dim, lines
from tui.stats import spark


def draw(figures: Figures, width: int) -> Content:
    turn = figures.turn
    if turn.acceptance is None:
        why = "no round has proposed anything yet" if figures.drafter != "none" else "drafting is off (Shift+Tab)"
        return dim(why)
    head = Content.assemble((f"{turn.acceptance:.2f}", "bold"), f"  moving {turn.ema or 0:.2f}")
    mostly = max((Source.DRAFT, Source.LOOKUP), key=lambda source: turn.by_source[source])
    body = Content.styled(spark(turn.rates, width, 1.0), f"$source-{mostly}")
    return lines(head, body, f"per round {turn.per_round or 0:.1f} tok · rounds {turn.rounds}")


PANEL = Panel("acceptance", "Acceptance", draw)

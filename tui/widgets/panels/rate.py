"""Tokens a second while decoding, and how that compares with plain decoding as measured here."""

from __future__ import annotations

from textual.content import Content

from tui.conversation.stats import spark, speed_up
from tui.widgets.block_charts import Level, columns
from tui.widgets.panels.base import Figures, Panel, dim, lines


def measured(figures: Figures) -> float:
    """Plain decoding by the calibration; 0 when there is none."""
    return float(getattr(figures.calibration, "plain", 0.0) or 0.0)


def draw(figures: Figures, width: int) -> Content:
    turn, session = figures.turn, figures.session
    if turn.rate is None:
        return dim("no answer yet")
    plain = session.plain_rate or measured(figures) or None
    gain = speed_up(turn, session, measured(figures))
    beside = f"  plain {plain:.1f}" if plain is not None else "  plain: not measured"
    head = Content.assemble((f"{turn.rate:.1f}", "bold"), beside)
    body = Content.styled(spark(list(turn.seconds), width), "$primary")
    tail = f"verify {turn.verify_mean or 0:.1f} ms · round {turn.round_ms or 0:.1f} ms"
    return lines(head, body, *([f"speed-up {gain:.2f}×"] if gain else []), tail)


def chart(figures: Figures, width: int, height: int) -> Content:
    """Each second of decoding, with the rate of the answer and plain decoding across."""
    turn = figures.turn
    plain = figures.session.plain_rate or measured(figures)
    levels = [Level(plain, f"plain {plain:.1f}")] if plain else []
    if turn.rate is not None:
        levels.append(Level(turn.rate, f"mean {turn.rate:.1f}", "$success"))
    head = "tokens committed in each second of decoding, newest right"
    where = " · amber: plain decoding as measured" if plain else " · plain decoding was not measured (/calibrate)"
    return lines(dim(head + where), columns(list(turn.seconds), width, height - 1, levels=levels))


PANEL = Panel("rate", "Tokens/s", draw, chart=chart, compact=True)

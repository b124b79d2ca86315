"""Tokens a second while decoding, and how that compares with plain decoding as measured here."""

from __future__ import annotations

from textual.content import Content

from tui.panels import Figures, Panel, dim, lines
from tui.stats import spark, speed_up


def draw(figures: Figures, width: int) -> Content:
    turn, session = figures.turn, figures.session
    if turn.rate is None:
        return dim("no answer yet")
    measured = float(getattr(figures.calibration, "plain", 0.0) or 0.0)
    plain = session.plain_rate or measured or None
    gain = speed_up(turn, session, measured)
    beside = f"  plain {plain:.1f}" if plain is not None else "  plain: not measured"
    head = Content.assemble((f"{turn.rate:.1f}", "bold"), beside)
    body = Content.styled(spark(list(turn.seconds), width), "$primary")
    tail = f"verify {turn.verify_mean or 0:.1f} ms · round {turn.round_ms or 0:.1f} ms"
    return lines(head, body, *([f"speed-up {gain:.2f}×"] if gain else []), tail)


PANEL = Panel("rate", "Tokens/s", draw)

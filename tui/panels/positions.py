"""Acceptance at each place of the block: how long drafts are worth making."""

from __future__ import annotations

from textual.content import Content

from engine.core import Source
from tui.panels import Figures, Panel, dim, lines
from tui.stats import bar

ROWS = 8


def draw(figures: Figures, width: int) -> Content:
    session = figures.session
    source = Source.LOOKUP if figures.drafter == "lookup" else Source.DRAFT
    places = session.shown_positions(source)
    if not places:
        other = Source.DRAFT if source is Source.LOOKUP else Source.LOOKUP
        places, source = session.shown_positions(other), other
    if not places:
        return dim("too few drafts to tell")
    rows = []
    room = max(4, width - 16)
    for i, place in enumerate(places[:ROWS]):
        cells = bar(place.rate, room)
        cells += " " * (room - len(cells))
        count = f"n{place.drafted}"
        rows.append(
            Content.assemble(f"d{i} ", (cells, f"$source-{source}"), f" {place.rate:.2f} ", (f"{count:>6}", "$faint"))
        )
    return lines(*rows)


PANEL = Panel("positions", "By position", draw)

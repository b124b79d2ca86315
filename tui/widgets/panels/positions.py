"""Acceptance at each place of the block: how long drafts are worth making."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from textual.content import Content

from engine.types import Source
from tui.conversation.stats import Position, bar
from tui.widgets.block_charts import columns
from tui.widgets.panels.base import Figures, Panel, dim, lines

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
    return bars(places[:ROWS], source, width)


def bars(places: Sequence[Position], source: Source, width: int) -> Content:
    """A row for each place of the block."""
    rows: list[Content] = []
    room = max(4, width - 16)
    for i, place in enumerate(places):
        cells = bar(place.rate, room)
        cells += " " * (room - len(cells))
        count = f"n{place.drafted}"
        rows.append(
            Content.assemble(f"d{i} ", (cells, f"$source-{source}"), f" {place.rate:.2f} ", (f"{count:>6}", "$faint"))
        )
    return lines(*rows)


def chart(figures: Figures, width: int, height: int) -> Content:
    """How far drafts survive: what longer ones would still give."""
    parts: list[Content] = []
    found = [(s, figures.session.shown_positions(s)) for s in (Source.DRAFT, Source.LOOKUP)]
    found = [(source, places) for source, places in found if places]
    for source, places in found:
        kind = "learned drafts" if source is Source.DRAFT else "lookup"
        few = len(figures.session.positions[source]) - len(places)
        rest = f" · {few} further places have too few drafts to tell" if few else ""
        parts += [
            dim(f"{kind}: share of drafts that are kept up to each place{rest}"),
            columns(
                survival(places),
                width,
                max(4, height // len(found) - 1),
                top=1.0,
                style=f"$source-{source}",
                names=[f"d{i}" for i in range(len(places))],
            ),
        ]
    return lines(*parts) if parts else dim("too few drafts to tell")


def survival(places: Sequence[Position]) -> list[float]:
    """A draft counts at a place when all before it were accepted, too."""
    return list(accumulate((place.rate for place in places), mul))


PANEL = Panel("positions", "By position", draw, chart=chart)

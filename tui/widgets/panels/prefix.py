"""What the prefix cache saved on the last prompt, and what it holds."""

from __future__ import annotations

from textual.content import Content

from tui.conversation.stats import bar, human
from tui.widgets.panels.base import Figures, Panel, dim, lines


def share(figures: Figures) -> str:
    """Hit share of the last prompt, for the folded row."""
    event = figures.prefilled
    return f"{event.cached / event.tokens:.0%}" if event is not None and event.tokens else ""


def draw(figures: Figures, width: int) -> Content:
    event = figures.prefilled
    if event is None:
        return dim("no prompt read yet")
    part = event.cached / event.tokens if event.tokens else 0.0
    room = max(4, width - 12)
    full = bar(part, room)
    full += "░" * (room - len(full))
    head = Content.assemble((f"{part:.0%}", "bold"), f" of the prompt  ({event.hit})")
    meter = Content.assemble((full, "$primary"), f" {human(event.cached)}/{human(event.tokens)}")
    saved = f"saved {event.saved_ms / 1000:.1f} s" if event.saved_ms > 0 else "saved time: not measured"
    tail = f"read in {event.ms / 1000:.2f} s · {saved}" if event.cached else f"read in {event.ms / 1000:.2f} s"
    rows = [head, meter, Content(tail)]
    if figures.cache is not None:
        held = getattr(figures.cache, "nbytes", 0) / 2**20
        kept = getattr(figures.cache, "entries", 0)
        rows.append(Content(f"{kept} {'entry' if kept == 1 else 'entries'} · {held:.0f} MB"))
        unsound = getattr(figures.cache, "unsound", 0)
        if unsound:
            rows.append(Content.styled(f"{unsound} wrong, dropped: see the log", "$error"))
    return lines(*rows)


PANEL = Panel("prefix", "Prefix cache", draw)

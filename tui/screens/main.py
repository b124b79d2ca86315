"""The screen of the conversation: Textual's own, with the footer in an order of ours."""

from __future__ import annotations

from textual.binding import ActiveBinding
from textual.screen import Screen

from tui.keys import FOOTER


class MainScreen(Screen[None]):
    """Where keys that a widget has too would stand before all others."""

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        order = {id: at for at, id in enumerate(FOOTER)}
        found = super().active_bindings.items()
        return dict(sorted(found, key=lambda item: order.get(item[1].binding.id or "", len(order))))

"""The keys at the bottom of the screen: as many as fit whole.

Which keys, and in which order, is the screen's business (tui/keys.py).
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.widget import Widget
from textual.widgets import Footer


class KeyRow(Footer):
    """Textual's footer, which would cut the last key in the middle of a word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ends: list[tuple[Widget, int]] = []
        """Each key and the column where it ends; taken when all are laid out, since hidden ones have no place."""

    async def recompose(self) -> None:
        await super().recompose()
        self._ends = []

    def on_mount(self) -> None:
        self.screen.screen_layout_refresh_signal.subscribe(self, self._laid_out)

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _laid_out(self, _screen: object) -> None:
        if self._ends or not all(key.virtual_region.right for key in self.children):
            return
        self._ends = [(key, key.virtual_region.right) for key in self.children]
        self._fit()

    def _fit(self) -> None:
        for key, end in self._ends:
            key.visible = end <= self.size.width

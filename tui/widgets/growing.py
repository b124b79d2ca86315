"""Growing by a row should cost one layout, not two.

Textual lays a screen out again whenever a widget's virtual size changed during a layout, and draws a widget anew when
its height did. Neither is needed where the size was just computed and old rows stay as they are. This relies on
internals of the exact Textual version that the package pins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.widget import Widget

if TYPE_CHECKING:
    Base = Widget
else:
    Base = object  # a widget class here would hide the style sheet of the class that it is mixed into


class Settled(Base):
    """Mixin: a size that a layout gave asks for no further layout."""

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class Growing(Settled):
    """Mixin: another height at the same width leaves drawn rows as they are; the widget itself marks what changed."""

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        if size.width != self._size.width or size.height == self._size.height:
            return super()._size_updated(size, virtual_size, container_size, layout)
        self._layout_cache.clear()
        self._size = size
        self.set_reactive(Widget.virtual_size, virtual_size)  # pyright: ignore[reportArgumentType] (untyped descriptor)
        self._container_size = container_size
        return True

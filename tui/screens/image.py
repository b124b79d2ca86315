"""The pictures of a message, one at a time, as well as the terminal can draw them; nothing moves above them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Center, Vertical
from textual.content import Content
from textual.widgets import Static

from engine.chat.images import described, read_picture
from engine.chat.terminal_safe import one_line
from engine.errors import DsparkError
from tui.screens.overlay import Overlay
from tui.terminal import image_protocol


class PictureScreen(Overlay[None]):
    """Reads each file when it is shown: what is on the screen is what would be sent."""

    DEFAULT_CSS = """
    PictureScreen { align: center middle; background: $background 60%; }
    PictureScreen > Vertical { width: 94%; height: 92%; padding: 0 1; background: $surface; border: round $primary; }
    PictureScreen #picture { height: 1fr; align: center middle; }
    PictureScreen #picture > Image { width: auto; height: 100%; }
    PictureScreen #about { height: auto; color: $faint; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,down,space,tab", "step(1)", show=False, priority=True),
        Binding("left,up", "step(-1)", show=False, priority=True),
        Binding("enter,q", "dismiss_none", show=False, priority=True),
    ]

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__()
        self._paths = list(paths)
        self._at = 0

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Pictures"
            yield Center(id="picture")
            yield Static(id="about")

    def on_mount(self) -> None:
        self._read()

    def on_click(self) -> None:
        self.action_step(1)

    def action_step(self, by: int) -> None:
        if len(self._paths) > 1:
            self._at = (self._at + by) % len(self._paths)
            self._read()

    @work(thread=True, exclusive=True, group="picture", exit_on_error=False)
    def _read(self) -> None:
        """Decoding takes a while."""
        path, widget = self._paths[self._at], None
        try:
            picture = read_picture(path)
            about = described(picture)
            picture.image.thumbnail((2000, 2000))
            widget = image_protocol.widget(picture.image)
        except DsparkError as error:
            about = str(error)
        self.app.call_from_thread(self._show, widget, about)

    async def _show(self, widget: Any, about: str) -> None:
        place = self.query_one("#picture", Center)
        await place.remove_children()
        if widget is not None:
            await place.mount(widget)
        many = f"{self._at + 1} of {len(self._paths)} · ← → · " if len(self._paths) > 1 else ""
        self.query_one("#about", Static).update(Content(f"{one_line(about)}\n{many}Esc leaves"))

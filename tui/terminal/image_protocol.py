"""What this terminal can draw of a picture: its own graphics (kitty, sixel) by textual-image, else half blocks.

textual-image asks the terminal when it is imported, which only works before the app reads the keyboard. So it is
imported at the start, and only where the environment names a terminal that draws graphics; elsewhere it would cost the
start time and could leave a late answer in the message.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger("dspark.tui")

PROGRAMS = frozenset({"kitty", "ghostty", "wezterm", "iterm.app", "mintty", "rio", "contour", "konsole", "vscode"})
TERMS = ("xterm-kitty", "xterm-ghostty", "foot", "mlterm", "contour", "yaft", "rio")
VARIABLES = ("KITTY_WINDOW_ID", "KONSOLE_VERSION", "WEZTERM_PANE", "GHOSTTY_RESOURCES_DIR", "WT_SESSION")


def graphics(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal may draw pictures of its own. Never inside another one that would have to pass them on, nor
    over a line on which its answer may come late."""
    env = os.environ if environ is None else environ
    if any(env.get(name) for name in ("TMUX", "STY", "SSH_CONNECTION", "SSH_TTY", "NO_COLOR")):
        return False
    named = env.get("TERM_PROGRAM", "").lower() in PROGRAMS or env.get("TERM", "").startswith(TERMS)
    return named or any(env.get(name) for name in VARIABLES)


def prepare() -> None:
    """Ask the terminal; before the app has it."""
    if graphics() and sys.__stdout__ is not None and sys.__stdout__.isatty():
        try:
            import textual_image.widget  # noqa: F401  (asks when it is imported)
        except Exception:  # a terminal that tells no size, or nonsense: pictures are not worth the start
            log.warning("the terminal was not understood; pictures are drawn in half blocks", exc_info=True)


def widget(image: Image.Image) -> Any:
    """A widget that shows the picture as well as this terminal can."""
    asked = sys.modules.get("textual_image.widget")
    if asked is None or asked.AutoRenderable in (asked.HalfcellRenderable, asked.UnicodeRenderable):
        return HalfBlocks(image)
    return asked.Image(image)


class HalfBlocks(Static):
    """Two pixels a cell."""

    DEFAULT_CSS = """
    HalfBlocks { width: 1fr; height: 1fr; content-align: center middle; }
    """

    def __init__(self, image: Image.Image) -> None:
        super().__init__()
        self._image = image

    def on_resize(self) -> None:
        self.update(half_blocks(self._image, self.size.width, self.size.height), layout=False)


def half_blocks(image: Image.Image, columns: int, rows: int) -> Content:
    """The picture within this many cells, its shape kept."""
    if columns < 1 or rows < 1:
        return Content("")
    scale = min(columns / image.width, 2 * rows / image.height)
    width, height = max(1, int(image.width * scale)), max(1, int(image.height * scale / 2))
    pixels = image.convert("RGB").resize((width, 2 * height)).load()
    assert pixels is not None
    lines: list[Content] = []
    for y in range(height):
        cells = [("▀", _style(pixels[x, 2 * y], pixels[x, 2 * y + 1])) for x in range(width)]
        lines.append(Content.assemble(*cells))
    return Content("\n").join(lines)


def _style(upper: Any, lower: Any) -> Style:
    from textual.color import Color

    return Style(background=Color(*lower), foreground=Color(*upper))

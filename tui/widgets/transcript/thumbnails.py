"""Small pictures below a message: read beside the screen, drawn in half blocks, which every terminal with colours has.

Only what is still the file that was sent is shown: the line that says what was sent must fit it. No widgets.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.chat.images import described, read_picture
from engine.errors import DsparkError
from tui.conversation.images import mentioned
from tui.markdown.lines import Line, Run

if TYPE_CHECKING:
    from PIL import Image

ROWS = 6
COLUMNS = 40
INDENT = 4
KEPT = 64
"""Files whose small picture is kept; each takes a few kilobytes."""

Version = tuple[Path, int, int]
Seen = tuple[str, "Image.Image"]
"""What a message that sent this file says of it, and the small picture."""


class Thumbs:
    """Small pictures of files. `read` may take long and belongs on a thread; only one at a time."""

    def __init__(self) -> None:
        self._seen: dict[Version, Seen | None] = {}

    def read(self, message: str, said: Iterable[str]) -> tuple[Image.Image | None, ...]:
        """For each line about a picture of a message, the picture if its file is as it was sent."""
        found = [seen for path in mentioned(message) if (seen := self._look(path)) is not None]
        return tuple(next((image for about, image in found if _fits(text, about)), None) for text in said)

    def _look(self, path: Path) -> Seen | None:
        """Once for each version of a file, whatever comes of it."""
        try:
            stat = path.stat()
        except OSError:
            return None
        version = (path, stat.st_mtime_ns, stat.st_size)
        if version not in self._seen:
            self._seen[version] = _small(path)
            while len(self._seen) > KEPT:
                del self._seen[next(iter(self._seen))]
        return self._seen[version]


def _small(path: Path) -> Seen | None:
    try:
        picture = read_picture(path)
    except (DsparkError, OSError, MemoryError):
        return None
    about = described(picture)
    picture.image.thumbnail((2 * COLUMNS, 4 * ROWS))
    return about, picture.image


def _fits(said: str, about: str) -> bool:
    """Whether a line is about this file: name, shape and size, which stand first in both."""
    return said.split(" · ")[:2] == about.split(" · ")[:2]


def lines(image: Image.Image, width: int) -> list[Line]:
    """The picture in rows of half blocks, its shape kept; nothing where there is no room."""
    columns = min(COLUMNS, width - INDENT)
    if columns < 2:
        return []
    scale = min(columns / image.width, 2 * ROWS / image.height)
    wide, high = max(1, round(image.width * scale)), max(1, round(image.height * scale / 2))
    data = image.convert("RGB").resize((wide, 2 * high)).tobytes()
    rows: list[Line] = []
    for y in range(high):
        runs = [Run(" " * INDENT)]
        for x in range(wide):
            upper, lower = 3 * (2 * y * wide + x), 3 * ((2 * y + 1) * wide + x)
            look = f"#{data[upper : upper + 3].hex()}/#{data[lower : lower + 3].hex()}"
            if runs[-1].style == look:
                runs[-1] = Run(runs[-1].text + "▀", look)
            else:
                runs.append(Run("▀", look))
        rows.append(Line(tuple(runs), ""))
    return rows


def is_picture(line: Line) -> bool:
    """Whether a row is part of one, and no text."""
    return len(line.runs) > 1 and line.runs[1].style.startswith("#")

"""Pictures in a conversation: named in a message, read when it is sent, and kept as they were then. No widgets.

A message names a picture as `@path`, or by a line that is nothing but its path, as a paste or a drop onto the terminal
leaves it. What names no picture file stays text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import PictureUnreadable
from engine.vision import Picture, attached, check_pictures, read_picture


class Album:
    """The pictures of one conversation."""

    def __init__(self) -> None:
        self.waiting: list[Path] = []
        """To be sent with the next message."""
        self._sent: dict[tuple[int, str, Path], Picture] = {}

    def attach(self, name: str) -> Picture:
        """Send this file with the next message.

        Raises:
            PictureUnreadable: when it is no picture that can be used.
        """
        picture = read_picture(name.strip().strip("'\""))
        self.waiting.append(Path(name.strip().strip("'\"")).expanduser().absolute())
        return picture

    def join(self, text: str) -> str:
        """The message with what waits in front of it."""
        mentions = "".join(f'@"{path}"\n' for path in self.waiting)
        self.waiting = []
        return mentions + text

    def place(
        self, messages: Sequence[Mapping[str, Any]], model: str, vision: bool
    ) -> tuple[list[dict[str, Any]], list[Picture]]:
        """Messages with pictures in their places, and the pictures in order.

        A picture of an earlier message is the one that was sent, whatever happened to its file; after a restart it is
        read again, and named in words when it is gone.

        Raises:
            ImageUnsupported, PictureUnreadable: for the last message.
        """
        out: list[dict[str, Any]] = []
        pictures: list[Picture] = []
        for i, message in enumerate(messages):
            text = message["content"]
            parts = attached(text) if message["role"] == "user" else [text]
            if not any(isinstance(p, Path) for p in parts):
                out.append(dict(message))
                continue
            last = i == len(messages) - 1
            content: list[dict[str, Any]] = []
            for part in parts:
                picture = self._picture(i, text, part, last) if isinstance(part, Path) else None
                if picture is not None:
                    pictures.append(picture)
                    content.append({"type": "image"})
                else:
                    content.append({"type": "text", "text": part if isinstance(part, str) else f"[{part.name}]"})
            out.append({**message, "content": content})
        if not vision:
            check_pictures(model, None, pictures)
        return out, pictures

    def _picture(self, index: int, text: str, path: Path, last: bool) -> Picture | None:
        key = (index, text, path)
        if last or key not in self._sent:
            try:
                self._sent[key] = read_picture(path)
            except PictureUnreadable:
                if last:
                    raise
                return None
        return self._sent[key]


def described(picture: Picture, rows: int = 0) -> str:
    """`cat.png 1024×768 · 812 KB · 1,196 tokens · first of 3 frames`."""
    parts = [f"{picture.name} {picture.width}×{picture.height}", f"{max(1, picture.nbytes // 1024)} KB"]
    return " · ".join([*parts, *([f"{rows:,} tokens"] if rows else []), *([picture.note] if picture.note else [])])

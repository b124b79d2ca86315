"""Pictures in a conversation: named in a message, read when it is sent, and kept as they were then. No widgets.

A message names a picture as `@path`, or by a line that is nothing but its path, as a paste or a drop onto the terminal
leaves it. What names no picture file stays text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.chat.history import picture_note
from engine.chat.images import Picture, attached, check_pictures, described, read_picture
from engine.errors import DsparkError, PictureUnreadable
from tui.engine_api import EngineLike


@dataclass(frozen=True, slots=True)
class Attachment:
    """One picture of the message being written, as a line for people."""

    text: str
    trouble: bool = False
    """It will not be sent."""


class Album:
    """The pictures of one conversation."""

    def __init__(self) -> None:
        self.waiting: list[Path] = []
        """To be sent with the next message."""
        self._sent: dict[tuple[int, str, Path], Picture] = {}

    def attach(self, path: Path, found: Attachment) -> str:
        """Send this file with the next message, if it can be sent; what there is to say of it."""
        if found.trouble:
            return found.text
        self.waiting.append(path)
        return f"{found.text}: goes with the next message."

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
        read again. When it is gone, or the model reads text only, it is named in words.

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
                picture = None
                if isinstance(part, Path) and (vision or last):
                    picture = self._picture(i, text, part, last)
                if picture is not None:
                    pictures.append(picture)
                    content.append({"type": "image"})
                else:
                    content.append({"type": "text", "text": part if isinstance(part, str) else picture_note(part.name)})
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


def looking(path: Path, engine: EngineLike | None) -> Iterator[Attachment]:
    """What goes with the message, and then what it will cost as well; or why it will not go. Reads the file and, the
    first time, imports what prepares pictures: seconds, so not for a drawing thread."""
    try:
        picture = read_picture(path)
        if engine is not None and not engine.spec.vision:
            check_pictures(engine.spec.name, None, [picture])
        yield Attachment(described(picture))
        if engine is not None:
            yield Attachment(described(picture, engine.picture_tokens(picture)))
    except DsparkError as error:
        yield Attachment(str(error), True)


def look(path: Path, engine: EngineLike | None) -> Attachment:
    """All that there is to say of it."""
    return list(looking(path, engine))[-1]


def mentioned(text: str) -> list[Path]:
    """Pictures named in a message, in order."""
    return [part for part in attached(text) if isinstance(part, Path)]

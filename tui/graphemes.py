"""Where one visible character ends and the next begins: joined emoji, flags, skin tones, combining marks. Pure."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"


def _extends(char: str) -> bool:
    code = ord(char)
    return (
        unicodedata.category(char) in ("Mn", "Me", "Mc")
        or char == _JOINER
        or 0xFE00 <= code <= 0xFE0F
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
    )


def _flag(char: str) -> bool:
    return 0x1F1E6 <= ord(char) <= 0x1F1FF


def next_boundary(text: str, at: int) -> int:
    """End of the visible character that starts at `at`."""
    if at >= len(text):
        return len(text)
    end = at + 1
    if _flag(text[at]) and end < len(text) and _flag(text[end]):
        end += 1
    while end < len(text) and (_extends(text[end]) or text[end - 1] == _JOINER):
        end += 1
    return end


def previous_boundary(text: str, at: int) -> int:
    """Start of the visible character that ends at `at`."""
    start = end = 0
    while end < at:
        start, end = end, next_boundary(text, end)
    return start

"""Where one visible character ends and the next begins, as Unicode has it (`\\X`). Pure."""

from __future__ import annotations

import regex

_VISIBLE = regex.compile(r"\X")


def next_boundary(text: str, at: int) -> int:
    """End of the visible character that starts at `at`."""
    found = _VISIBLE.match(text, at)
    return found.end() if found is not None else len(text)


def previous_boundary(text: str, at: int) -> int:
    """Start of the visible character that ends at `at`."""
    return max((found.start() for found in _VISIBLE.finditer(text, endpos=at)), default=0)

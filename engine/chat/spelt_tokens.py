"""Control tokens that somebody merely spelt: in whatever field of a request they stand, they stay text.

Messages, tools and template variables are guarded before a template sees them; what the template itself writes is not.
Knows a vocabulary, no template and no role.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from engine.chat.foreign_text import whole
from engine.chat.reply_cache import MARK

T = TypeVar("T")
_ESCAPE = "\ue0f0"
"""Private-use mark around what is said literally although it is spelt like a control token."""


CUT = "\ue0f2"
"""Private-use mark at the end of an answer that is to go on: what a template writes behind it is left out."""


class SpeltTokens:
    """Guards foreign values of one vocabulary, and encodes text in which they stand."""

    def __init__(self, tokenizer: Any, encode: Callable[[str], list[int]]) -> None:
        self._pattern = _special_pattern(tokenizer)
        self._plain = encode

    def guard(self, value: T) -> T:
        """The value with marks around every control token in its texts: arguments, names and descriptions as well as
        content."""
        if isinstance(value, str):
            return cast("T", self._escape(value))
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return cast("T", {self.guard(k): self.guard(v) for k, v in items})
        if isinstance(value, list | tuple):
            return cast("T", [self.guard(v) for v in cast("list[Any]", value)])
        return value

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered text."""
        ids: list[int] = []
        for i, piece in enumerate(text.split(_ESCAPE)):
            if i % 2:
                # Cut in two it is spelt, not meant.
                ids += self._plain(piece[:1]) + self._plain(piece[1:])
            elif piece:
                ids += self._plain(piece)
        return ids

    def _escape(self, text: str) -> str:
        text = whole(text).replace(_ESCAPE, "").replace(MARK, "").replace(CUT, "")
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda m: f"{_ESCAPE}{m[0]}{_ESCAPE}", text)


def _special_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    """Matches every control token of a vocabulary."""
    added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    names = {str(t.content) for t in added.values() if t.special} | set(getattr(tokenizer, "all_special_tokens", []))
    longest_first = sorted(names - {""}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

"""Answers as they were generated, for the history of later prompts.

A model may spell a text in other tokens than its tokenizer would (about one answer in nine of a small model). Encoded
afresh, such an answer would end every shared prefix; history therefore repeats the model's own tokens.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

MARK = "\ue0f1"
"""Private-use character on both sides of an answer's number in a rendered text."""
REMEMBERED = 512


class Replies:
    """Texts whose tokens are known and differ from the tokenizer's. Thread-safe."""

    def __init__(self, encode: Callable[[str], list[int]], decode: Callable[[Sequence[int]], str]) -> None:
        self._encode = encode
        self._decode = decode
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._ids: dict[int, list[int]] = {}

    def add(self, text: str, ids: Sequence[int]) -> None:
        """ids: all that was generated, with or without the token that ended it."""
        # Templates strip blanks, and what they strip cannot be repeated.
        if not text or text != text.strip() or MARK in text:
            return
        tokens = list(ids)
        if self._decode(tokens) != text:
            tokens = tokens[:-1]
        if self._decode(tokens) != text or self._encode(text) == tokens:
            return
        with self._lock:
            old = self._known.pop(text, None)
            self._ids.pop(-1 if old is None else old, None)
            number = self._known[text] = next(self._numbers)
            self._ids[number] = tokens
            if len(self._known) > REMEMBERED:
                del self._ids[self._known.pop(next(iter(self._known)))]

    def mark(self, text: str) -> str:
        """A stand-in for an answer that is known; anything else as it is. It holds letters of both cases, so that a
        template which changes its text is noticed."""
        with self._lock:
            number = self._known.get(text)
        return text if number is None else f"{MARK}Answer {number}{MARK}"

    def split(self, text: str) -> list[str | list[int]] | None:
        """A rendered text as text and known ids in turn; None when an answer was forgotten meanwhile."""
        pieces: list[str | list[int]] = []
        for i, piece in enumerate(text.split(MARK)):
            if i % 2 == 0:
                pieces.append(piece)
                continue
            with self._lock:
                ids = self._ids.get(int(piece.removeprefix("Answer ")))
            if ids is None:
                return None
            pieces.append(ids)
        return pieces

"""When a sequence ends, and which text is safe to show. Applied token by token, the same for every drafter and row.

The token that ends a sequence, by its id or by completing a stop string, is the last one in ids, usage, rounds and
state; nothing after it exists anywhere. Its text is not shown, nor is any part of a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from engine.chat.stop_scope import WholeText
from engine.chat.tokenizer import Tokenizer
from engine.types import Piece, Source, StopScope

Reason = Literal["stop", "length", "context"]


class Finish:
    """The end-of-sequence logic and the text of one request."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop_ids: frozenset[int],
        stop: Sequence[str],
        max_tokens: int,
        room: int,
        scope: StopScope | None = None,
    ) -> None:
        """room: tokens until the context window is full. scope: where stop strings count; None is everywhere."""
        self._stream = tokenizer.stream()
        self._stop_ids = stop_ids
        self._stops = tuple(s for s in stop if s)
        self._longest = max((len(s) for s in self._stops), default=0)
        self._scope = scope or WholeText()
        self._run = ""
        """The last stretch of text without a gap in which stop strings count."""
        self._run_start = 0
        self._max_tokens = max_tokens
        self._room = room
        self._count = 0
        self._held: list[Piece] = []
        self.text = ""
        """All text so far, held parts included; cut before a stop string once one is found."""
        self.stop: str | int | None = None
        self.reason: Reason | None = None

    @property
    def remaining(self) -> int:
        """Tokens that may still be committed."""
        return min(self._max_tokens, self._room) - self._count

    def push(self, token: int, source: Source, position: int, round_index: int) -> Reason | None:
        """Take one committed token. Returns why the sequence ends with it, or None."""
        self._count += 1
        if token in self._stop_ids:
            self._held.append(Piece("", source, token, position, round_index))
            return self._end("stop", token)
        text = self._stream.push(token)
        self._held.append(Piece(text, source, token, position, round_index))
        self.text += text
        if text and self._stops and (found := self._find_stop(text)) is not None:
            where, stop = found
            self._cut(where)
            return self._end("stop", stop)
        if self.remaining <= 0:
            return self._end("length" if self._count >= self._max_tokens else "context", None)
        return None

    def take(self) -> tuple[Piece, ...]:
        """Pieces that are safe now. After the end: everything that is left."""
        safe = len(self._held) if self.reason else self._safe_pieces()
        out, self._held = tuple(self._held[:safe]), self._held[safe:]
        return out

    def _find_stop(self, text: str) -> tuple[int, str] | None:
        """The first stop string that the further text completes, and where in the whole text it begins."""
        for start, run in self._scope.feed(text):
            if start != self._run_start + len(self._run):
                self._run_start, self._run = start, ""
            searched_from = max(0, len(self._run) - self._longest + 1)
            self._run += run
            hits = [(at, s) for s in self._stops if (at := self._run.find(s, searched_from)) >= 0]
            if hits:
                at, stop = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
                return self._run_start + at, stop
        return None

    def _cut(self, where: int) -> None:
        """Remove text[where:] from the pieces that are held; nothing after `where` was given out."""
        surplus = len(self.text) - where
        for i in range(len(self._held) - 1, -1, -1):
            piece = self._held[i]
            drop = min(surplus, len(piece.text))
            self._held[i] = replace(piece, text=piece.text[: len(piece.text) - drop])
            surplus -= drop
            if not surplus:
                break
        self.text = self.text[:where]

    def _end(self, reason: Reason, stop: str | int | None) -> Reason:
        self.reason, self.stop = reason, stop
        if not isinstance(stop, str):
            tail = self._stream.flush()
            if tail and self._held:
                # Half a character at the end belongs to the last token that carried text.
                index = len(self._held) - (2 if isinstance(stop, int) and len(self._held) > 1 else 1)
                self._held[index] = replace(self._held[index], text=self._held[index].text + tail)
                self.text += tail
        return reason

    def _safe_pieces(self) -> int:
        """How many held pieces end before the longest tail that could still become a stop string."""
        safe = len(self._held)
        if self._stream.incomplete:
            # Tokens of a half character wait for the one that completes it, or for the end.
            while safe and not self._held[safe - 1].text:
                safe -= 1
        tail = len(self.text) - self._certain() if self._stops else 0
        while safe and tail > 0:
            tail -= len(self._held[safe - 1].text)
            safe -= 1
        return safe

    def _certain(self) -> int:
        """Length of the text in which no stop string can begin any more."""
        settled, end = self._scope.settled, self._run_start + len(self._run)
        if end < settled:
            return settled
        tails = (n for s in self._stops for n in range(1, len(s)) if self._run.endswith(s[:n]))
        return min(settled, end - max(tails, default=0))

    def abandon(self) -> None:
        """End by the owner's will (cancel): give out what is held."""
        if self.reason is None:
            tail = self._stream.flush()
            if tail and self._held:
                self._held[-1] = replace(self._held[-1], text=self._held[-1].text + tail)
            self.text += tail if self._held else ""
            self.reason = "stop"

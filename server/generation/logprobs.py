"""Token ids as text and exact bytes, for logprob lists. Knows vocabularies, not models."""

from __future__ import annotations

import json
import re
from typing import Any

from engine.chat.tokenizer import Tokenizer
from engine.types import Logprob
from server.types import TokenLogprob

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes, by character."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    shifted = (b for b in range(256) if b not in set(plain))
    return table | {chr(256 + i): b for i, b in enumerate(shifted)}


class TokenBytes:
    """Bytes of single tokens; half a character stays half a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._backend: Any = tokenizer.backend
        fast = getattr(self._backend, "backend_tokenizer", None)
        spec = json.loads(fast.to_str()) if fast is not None else {}
        self._alphabet = _byte_alphabet() if "ByteLevel" in json.dumps(spec.get("decoder")) else None
        self._added = {int(t["id"]): str(t["content"]) for t in spec.get("added_tokens") or ()}

    def __call__(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        text = self._backend.convert_ids_to_tokens(token)
        if not isinstance(text, str):
            return b""
        if self._alphabet is not None:
            return bytes(self._alphabet.get(c, 63) for c in text)
        match = _BYTE.fullmatch(text)
        return bytes([int(match[1], 16)]) if match else text.replace("\u2581", " ").encode()

    def entry(self, found: Logprob) -> TokenLogprob:
        text, raw = self._text(found.token)
        top = tuple((*self._text(token), value) for token, value in found.top)
        return TokenLogprob(text, raw, found.logprob, top)

    def _text(self, token: int) -> tuple[str, tuple[int, ...]]:
        raw = self(token)
        return raw.decode("utf-8", "replace"), tuple(raw)

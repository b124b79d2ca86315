"""Token ids to text and back, one token at a time.

Wraps a transformers tokenizer. Knows nothing of models, chats or screens; chat templates are template.py's business.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|call|>",
    "<|endoftext|>",
    "<eos>",
)
"""Tokens with which some family hands over; `<|tool_response>` does after a tool call."""


class Detokenizer:
    """Incremental decoding of one sequence: whole characters only, and what was given out is never taken back.

    Decodes a short sliding part of the ids twice and gives out the difference (the method of Hugging Face TGI), which
    holds for byte-level, sentencepiece and byte-fallback vocabularies alike.
    """

    _RESYNC = 8
    """Tokens of context before the unread part: more than any decoder looks back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._prefix = 0
        self._read = 0
        self.incomplete = False
        """Whether the last token left a character unfinished."""

    def push(self, token: int) -> str:
        """Text that this token completes; empty while a character is incomplete."""
        self._ids.append(token)
        fresh = self._fresh()
        self.incomplete = fresh.endswith(REPLACEMENT)
        if not fresh or self.incomplete:
            return ""
        self._advance()
        return fresh

    def flush(self) -> str:
        """What is left at the end, incomplete characters included (as replacement marks)."""
        fresh = self._fresh()
        self._advance()
        return fresh

    def _fresh(self) -> str:
        before = self._tokenizer.decode(self._ids[self._prefix : self._read])
        now = self._tokenizer.decode(self._ids[self._prefix :])
        return now[len(before) :]

    def _advance(self) -> None:
        self._read = len(self._ids)
        self._prefix = max(0, self._read - self._RESYNC)


class Tokenizer:
    """A checkpoint's tokenizer: encode, decode, stream.

    `backend` is a transformers tokenizer; nothing here runs code from a checkpoint.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self._fast: Any = getattr(backend, "backend_tokenizer", None)
        self._literal: Any = None
        """Takes control tokens for text; made when first needed."""
        self._lock = threading.Lock()

    @property
    def vocab_size(self) -> int:
        return len(self.backend)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of plain text, without the tokenizer's own begin and end tokens. With `special`, text such as
        `<|im_end|>` becomes the control token; without it, a user cannot smuggle one in."""
        if self._fast is not None and not special:
            return list(self._encode_plain(text))
        return list(self.backend.encode(text, add_special_tokens=False))

    def _encode_plain(self, text: str) -> Sequence[int]:
        with self._lock:
            if self._literal is None:
                # A twin: the switch is a property of the whole tokenizer, with which other threads render prompts.
                self._literal = copy.deepcopy(self._fast)
                self._literal.encode_special_tokens = True
        return self._literal.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens included. No clean-up of spaces: decoding must be additive."""
        if self._fast is not None:
            return self._fast.decode(list(ids), skip_special_tokens=False)
        return self.backend.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def stream(self) -> Detokenizer:
        return Detokenizer(self)

    def token(self, text: str) -> int | None:
        """Id of a token by its text, or None when the vocabulary lacks it (an unknown-token id counts as lacking)."""
        found = self.backend.convert_tokens_to_ids(text)
        return None if found is None or found == self.backend.unk_token_id else int(found)


def stop_ids(tokenizer: Any, generation: Mapping[str, Any], config: Mapping[str, Any]) -> frozenset[int]:
    """Every token that ends a turn: those of tokenizer, generation config and config, and the family's own."""
    found: set[int] = set()
    text = config.get("text_config")
    for value in (
        getattr(tokenizer, "eos_token_id", None),
        generation.get("eos_token_id"),
        config.get("eos_token_id"),
        cast("Mapping[str, Any]", text).get("eos_token_id") if isinstance(text, Mapping) else None,
    ):
        if isinstance(value, int):
            found.add(value)
        elif isinstance(value, list | tuple):
            found.update(int(v) for v in cast("list[int]", value))
    unknown = getattr(tokenizer, "unk_token_id", None)
    for token in TURN_ENDS:
        i = tokenizer.convert_tokens_to_ids(token)
        if isinstance(i, int) and i >= 0 and i != unknown:
            found.add(i)
    return frozenset(found)

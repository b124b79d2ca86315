"""Answers that must fit a JSON schema, a regular expression or a grammar: a processor over llguidance.

Works with drafts: the draft is cut where it leaves the grammar, every row of the verify block is masked as it would be
in one-token decoding, and the parser goes back to the committed tokens afterwards. Knows no dialect and no template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import llguidance
import llguidance.numpy
import mlx.core as mx
import numpy as np

from engine.chat.tokenizer import Tokenizer
from engine.errors import UsageError

JSON_OPTIONS: dict[str, Any] = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n {0,12})?"}
"""For every JSON schema, also within grammars: unlimited white space is where small models lose themselves."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Where the constraint begins to hold: after the reasoning, if there is any."""

    closer: tuple[int, ...]
    """Ids that end the reasoning."""
    opener: int | None = None
    """Id that may begin it; None when the prompt has begun it already."""


class Grammars:
    """Compiles constraints for one tokenizer. Building it reads the whole vocabulary, so keep it."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, stop_ids: frozenset[int]) -> None:
        """vocab: columns of the logits."""
        fast = getattr(tokenizer.backend, "backend_tokenizer", None)
        if fast is None:
            raise UsageError("Constrained answers need a fast tokenizer, which this model does not have.")
        self._vocab = vocab
        self._stop_ids = sorted(i for i in stop_ids if i < vocab)
        size = max(vocab, tokenizer.vocab_size)
        self._tokenizer = llguidance.LLTokenizer(fast.to_str(), n_vocab=size, eos_token=self._stop_ids or None)

    def schema(self, schema: Mapping[str, Any]) -> str:
        """Raises UsageError when it is not a JSON schema that can be followed."""
        try:
            text = llguidance.LLMatcher.grammar_from_json_schema(dict(schema), defaults=JSON_OPTIONS)  # pyright: ignore[reportArgumentType]  # a TypedDict of these keys
        except ValueError as error:
            raise UsageError(f"The JSON schema cannot be used: {error}.") from error
        return self._checked(text, "JSON schema")

    def json(self) -> str:
        return self.schema({"type": "object"})

    def regex(self, pattern: str) -> str:
        return self._checked(llguidance.LLMatcher.grammar_from_regex(pattern), "regular expression")

    def lark(self, text: str) -> str:
        return self._checked(llguidance.LLMatcher.grammar_from_lark(text), "grammar")

    def choice(self, options: Sequence[str]) -> str:
        if not options:
            raise UsageError("A choice needs at least one option.")
        return self.lark("start: " + " | ".join(json.dumps(o) for o in options))

    def _checked(self, grammar: str, what: str) -> str:
        error = llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer)
        if error and not error.startswith("WARNING"):
            raise UsageError(f"The {what} cannot be used: {error.splitlines()[0].rstrip('.')}.")
        return grammar

    def constraint(self, grammar: str, gate: Gate | None = None) -> Constraint:
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise UsageError(f"The constraint cannot be used: {matcher.get_error().splitlines()[0]}.")
        return Constraint(matcher, self._vocab, gate)


class Constraint:
    """The constraint of one sequence; a `Processor`."""

    needs_draft = True

    def __init__(self, matcher: llguidance.LLMatcher, vocab: int, gate: Gate | None = None) -> None:
        self._matcher = matcher
        self._vocab = vocab
        self._gate = gate
        self._words = (vocab + 31) // 32
        self._free = gate is not None and gate.opener is None
        """Inside reasoning: everything goes."""
        self._tail: tuple[int, ...] = ()
        """The last ids of the reasoning, as many as a closer has, less one."""
        self._begun = False

    def trim(self, drafts: Sequence[int]) -> int:
        start = self._free_rows(drafts)
        if start > len(drafts):
            return len(drafts)
        count = self._consume(drafts[start:])
        self._back(count)
        return start + count

    def rows(self, logits: mx.array, drafts: mx.array) -> mx.array:
        ids = cast("list[int]", drafts.tolist())
        start = self._free_rows(ids)
        allowed = np.full((len(ids) + 1, self._words), -1, dtype=np.int32)
        consumed = 0
        for row in range(start, len(ids) + 1):
            if row > start and not self._consume(ids[row - 1 : row]):
                break
            consumed += row > start
            allowed[row] = self._mask()
            if row == 0 and not self._begun and self._gate is not None and self._gate.opener is not None:
                allowed[row, self._gate.opener // 32] |= np.int32(
                    np.uint32(1 << (self._gate.opener % 32)).view(np.int32)
                )
        self._back(consumed)
        bits = np.unpackbits(allowed.view(np.uint8), axis=1, bitorder="little")[:, : self._vocab]
        return mx.where(mx.array(cast(Any, bits)).astype(mx.bool_), logits, -mx.inf)

    def commit(self, tokens: Sequence[int]) -> None:
        start = self._free_rows(tokens)
        if tokens:
            self._begun = True
        if start > len(tokens):
            assert self._gate is not None
            self._free = True
            keep = len(self._gate.closer) - 1
            self._tail = (*self._tail, *tokens)[-keep:] if keep else ()
            return
        self._free = False
        # A grammar that breaks here says so in the next round, where the other rows do not suffer from it.
        self._matcher.try_consume_tokens(list(tokens[start:]))

    # The gate ---------------------------------------------------------------------------------------------------------

    def _free_rows(self, ids: Sequence[int]) -> int:
        """How many of the rows over `ids` come before the constraint holds; len(ids) + 1 when all do.

        Row i follows ids[:i], so a closer that ends with ids[i] leaves rows 0..i free.
        """
        gate = self._gate
        if gate is None or self._constrained(ids):
            return 0
        seen = self._tail
        for i, token in enumerate(ids):
            seen = (*seen, token)
            if seen[-len(gate.closer) :] == gate.closer:
                return i + 1
        return len(ids) + 1

    def _constrained(self, ids: Sequence[int]) -> bool:
        if self._free:
            return False
        gate = self._gate
        return self._begun or gate is None or gate.opener is None or not ids or ids[0] != gate.opener

    # The parser -------------------------------------------------------------------------------------------------------

    def _consume(self, ids: Sequence[int]) -> int:
        """Advance over as many ids as fit; how many did."""
        if not len(ids):
            return 0
        count = self._matcher.try_consume_tokens(list(ids))
        self._check()
        return count

    def _back(self, count: int) -> None:
        if count:
            self._matcher.rollback(count)
            self._check()

    def _mask(self) -> np.ndarray[Any, Any]:
        mask = llguidance.numpy.allocate_token_bitmask(1, self._words * 32)
        llguidance.numpy.fill_next_token_bitmask(self._matcher, mask, 0)
        self._check()
        return mask[0, : self._words]

    def _check(self) -> None:
        if self._matcher.is_error():
            raise UsageError(f"The constraint could not be followed: {self._matcher.get_error().splitlines()[0]}.")

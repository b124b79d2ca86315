"""Pictures and the prefix cache: reused up to the first picture that differs, though all pictures look alike in ids."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mlx.core as mx
import pytest
from fakes import Run, tiny_llama

from engine.decoding.sequence import numbers
from engine.prefix_cache.cache import PrefixCache
from engine.types import Media

MARK, ROW = 60, 61
ROWS = 6
TEXT = [(7 * i) % 50 for i in range(40)]


class Conversation:
    """Text with pictures between, each of the same size; a picture's rows come from its name."""

    def __init__(self, target: Any, *parts: str | list[int]) -> None:
        ids: list[int] = []
        rows: list[mx.array] = []
        media: list[Media] = []
        for part in parts:
            mine = [MARK, *[ROW] * (ROWS - 2), MARK] if isinstance(part, str) else part
            embedded = target.raw_embed(mx.array(mine))
            if isinstance(part, str):
                media.append(Media(part, len(ids), ROWS))
                seen = mx.random.normal((ROWS - 2, embedded.shape[1]), key=mx.random.key(sum(part.encode())))
                embedded = mx.concatenate([embedded[:1], seen, embedded[-1:]])
            ids += mine
            rows.append(embedded)
        self.ids, self.media, self.embeddings = ids, tuple(media), mx.concatenate(rows)[None]

    def ask(self, target: Any, cache: PrefixCache | None = None) -> Run:
        return Run(target, self.ids, cache=cache, embeddings=self.embeddings, media=self.media, max_tokens=10)


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_llama()


def cached(run: Run) -> int:
    return run.sequence.usage.cached


def test_all_before_the_first_other_picture_is_reused(target: Any) -> None:
    cache = PrefixCache(16 << 20)
    first = Conversation(target, TEXT, "cat", TEXT[:9])
    assert cached(first.ask(target, cache)) == 0
    other = Conversation(target, TEXT, "dog", TEXT[:9])
    assert other.ids == first.ids
    warm = other.ask(target, cache)
    assert cached(warm) == len(TEXT)
    assert warm.output == other.ask(target).output != first.ask(target).output
    again = first.ask(target, cache)
    assert cached(again) == len(first.ids) - 1
    assert again.output == first.ask(target).output


def test_a_second_picture_costs_only_itself(target: Any) -> None:
    """The turn before, its picture included, is not read again; and neither is a second picture taken for another."""
    cache = PrefixCache(16 << 20)
    before = Conversation(target, TEXT, "cat", TEXT[:9])
    before.ask(target, cache)
    for name in ("dog", "cow", "cat"):
        turn = Conversation(target, TEXT, "cat", TEXT[:9], name, TEXT[:5])
        warm = turn.ask(target, cache)
        assert cached(warm) == len(before.ids)
        assert warm.output == turn.ask(target).output
    swapped = Conversation(target, TEXT, "dog", TEXT[:9], "cat", TEXT[:5])
    assert cached(swapped.ask(target, cache)) == len(TEXT)


def test_text_is_no_picture(target: Any) -> None:
    """A prompt that spells a picture's ids out is not served with the picture."""
    cache = PrefixCache(16 << 20)
    pictured = Conversation(target, TEXT, "cat", TEXT[:9])
    pictured.ask(target, cache)
    spelt = Run(target, pictured.ids, cache=cache, max_tokens=10)
    assert cached(spelt) == len(TEXT)
    assert spelt.output == Run(target, pictured.ids, max_tokens=10).output


def test_numbers_of_pictures_are_no_tokens_and_differ() -> None:
    a, b = numbers(Media("a", 0, 500)), numbers(Media("b", 3, 500))
    assert max(*a, *b) < 0
    assert min(*a, *b) >= -(2**31)
    assert not set(pairwise(a)) & set(pairwise(b))
    assert numbers(Media("a", 9, 500)) == a

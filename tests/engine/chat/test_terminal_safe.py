"""Nothing that a model writes may drive the terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.terminal_safe import LIMIT, Sanitizer, clean, one_line
from tests.cases import examples

HOSTILE = [
    ("a\x1b]52;c;aGk=\x07b", "ab"),
    ("a\x1b]0;title\x1b\\b", "ab"),
    ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
    ("a\x1b[2Jb\x1b[6nc", "abc"),
    ("a\x1b[31;1mred\x1b[0m", "ared"),
    ("a\x1bPq#0;2\x1b\\b", "ab"),
    ("a\x1bcb", "ab"),
    ("a\x1b(0b", "ab"),
    ("a\x9b2Jb\x9d0;t\x9cc\x90x\x9cd", "abcd"),
    ("a\x1b]never ends\nnext", "a\nnext"),
    ("\x07\x08\x0b\x0c\x7f\r\x00x", "x"),
    ("rtl\u202eabc\u2066", "rtlabc"),
    ("tab\tand\nnewline", "tab\tand\nnewline"),
    ("a\x1b", "a"),
    ("a\x1b\x1b[1mb", "ab"),
    ("a\x1b]x\x1b[2Jb", "ab"),
]
TEXTS = st.text(st.sampled_from("ab \n;0123[]PX^_\\cmJ\x1b\x9b\x9d\x9c\x90\x07\x7f\x85é漢"), max_size=60)


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_sequences_are_removed_and_text_remains(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_splitting_makes_no_difference(text: str, shown: str) -> None:
    for cut in range(len(text)):
        sanitizer = Sanitizer()
        assert sanitizer.feed(text[:cut]) + sanitizer.feed(text[cut:]) == shown


@given(TEXTS)
@examples(300)
def test_no_control_survives_and_chunks_do_not_matter(text: str) -> None:
    whole = clean(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", whole)
    sanitizer = Sanitizer()
    assert "".join(sanitizer.feed(c) for c in text) == whole


def test_unterminated_sequence_swallows_a_bounded_part() -> None:
    assert clean("\x1b]" + "x" * (LIMIT + 10)).count("x") == 10


def test_one_line() -> None:
    assert one_line("a\x1b[2J\n b\t c") == "a b c"

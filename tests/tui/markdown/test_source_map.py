"""Every shown character carries the class of the source character that it is."""

from __future__ import annotations

import random

from tui.markdown.document import Document
from tui.markdown.lines import Line
from tui.markdown.source_map import Aligner

WORDS = [
    *("plain", "*emph*", "**strong**", "`code x`", "[label](http://host/path?q=1)", "~~gone~~", "你好世界", "a&amp;b"),
    *("\\*", "x_y", "👩‍👩‍👧‍👦", "**a *b* c**", "<http://auto.link>"),
]
DECORATION = set("•▌─│┼▣() ")


def shown(text: str) -> list[Line]:
    """Render with the class of each character computed from the character itself."""
    document = Document(50)
    for char in text:
        document.feed(char, ord(char) % 3 + 1)
    document.finish()
    return document.lines


def score(lines: list[Line]) -> tuple[int, int]:
    right = total = 0
    for line in lines:
        for run in line.runs:
            for char in run.text:
                if char not in DECORATION and "code-label" not in run.style and "marker" not in run.style:
                    total += 1
                    right += run.prov == ord(char) % 3 + 1
    return right, total


def test_random_inline_documents_align() -> None:
    rng = random.Random(1)
    right = total = 0
    for _ in range(200):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 40)))
        a, b = score(shown(rng.choice(["", "# ", "- ", "> ", "1. ", "- > "]) + text))
        right, total = right + a, total + b
    assert right / total > 0.98  # the rest are escapes and entities: theirs is the class of the last source character


def test_code_table_and_nested_blocks_align() -> None:
    text = "> - `a` b\n>   ```py\n>   x = y\n>   ```\n\n| ab | cd |\n|--|--|\n| **ef** | gh |\n\n    indented code\n"
    right, total = score(shown(text))
    assert right == total


def test_entity_takes_the_class_of_the_token_that_completed_it() -> None:
    document = Document(20)
    document.feed("&am", 1)
    document.feed("p;", 2)
    document.finish()
    assert document.lines[0].runs == (("&", "", 2),)


def test_what_is_not_in_the_source_has_no_class() -> None:
    assert Aligner("abc", b"\1\1\1").take("xyz") == b"\0\0\0"

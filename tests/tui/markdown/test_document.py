"""The one property that matters: what is shown depends on the text, not on how it arrived."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.cases import examples
from tui.markdown.document import Document
from tui.markdown.lines import Line
from tui.markdown.render import Renderer, Source, parser
from tui.provenance import DRAFT, LOOKUP, TARGET

SAMPLE = """# Title with `code`

Prose with **bold**, *emph*, ~~gone~~ and [a link](https://example.org "t") &amp; an \\*escape\\*.
Second line: 你好，世界。这是一个很长的段落，用来测试换行。 👩‍👩‍👧‍👦 🇫🇷 é

1. first
2. second
   with more

   and a paragraph
3. third
   - nested
   - list

     ```sh
     ls -l
     ```

```python
def f(x):
\treturn "a`b" + str(x)

```
| a | b |
|---|:-:|
| 1 | `two` |
| 三 | four \\| five |

> quote
> **two**

- [/foo] [bold
- loose

- item

---
~~~
open fence
"""

PIECES = st.sampled_from(
    [
        *"\n\n\n\n  #*`~->|1.[]()!\\&_:;x",
        *("\n\n", "\n- ", "\n1. ", "\n2) ", "\n> ", "\n```", "\n```py\n", "\n~~~\n", "\n|a|b|\n|-|-|\n", "\n| c | d |"),
        *("\n---\n", "\n===\n", "\n    code", "\n  - nested", "\n   continued", "def f(x): return 1\n", "\t"),
        *("**bold**", "*e*", "`c`", "[l](http://u.v/w)", "![i](j.png)", "<b>", "&lt;", "\\*", "http://x.y/z"),
        *("word ", "words and more words ", "漢字かな交じり文、続く。", "한국어", "שלום", "[x]: http://y\n"),
        *("👩‍👩‍👧‍👦", "🇫🇷", "e\u0301", "\u200d"),
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)
CLASSES = (TARGET, DRAFT, LOOKUP)


def coloured(text: str, seed: int = 0) -> bytes:
    """Some class for every character, in runs."""
    rng = random.Random(seed)
    out = bytearray()
    while len(out) < len(text):
        out += bytes((rng.choice(CLASSES),)) * rng.randint(1, 6)
    return bytes(out[: len(text)])


def fed(text: str, prov: bytes, cuts: list[int], width: int = 40, finish: bool = True) -> Document:
    """Feed `text` cut at `cuts`, settling after every cut."""
    document = Document(width)
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        start = a
        while start < b:  # one call of feed has one class
            end = start
            while end < b and prov[end] == prov[start]:
                end += 1
            document.feed(text[start:end], prov[start])
            start = end
        document.settle()
    if finish:
        document.finish()
    return document


def reference(text: str, prov: bytes, width: int) -> list[Line]:
    """All at once and without any of the incremental machinery."""
    tokens = parser().parse(text)
    return Renderer(tokens, Source.of(text, prov), width).blocks(0, len(tokens))


@given(TEXTS, st.lists(st.floats(0, 1), max_size=12), st.integers(1, 60), st.integers(0, 9))
@examples(300)
def test_any_chunking_shows_the_same(text: str, where: list[float], width: int, seed: int) -> None:
    prov = coloured(text, seed)
    cuts = sorted(int(x * len(text)) for x in where)
    assert fed(text, prov, cuts, width).lines == reference(text, prov, width)


@given(TEXTS, st.integers(1, 60), st.floats(0, 1))
@examples(150)
def test_unfinished_text_shows_the_same_however_it_came(text: str, width: int, where: float) -> None:
    prov = coloured(text)
    by_character = fed(text, prov, list(range(1, len(text))), width, finish=False)
    at_once = fed(text, prov, [], width, finish=False)
    assert by_character.lines == at_once.lines


@given(TEXTS, st.integers(1, 60))
@examples(150)
def test_settle_names_the_first_changed_row(text: str, width: int) -> None:
    document = Document(width)
    before: list[Line] = []
    for char in text:
        document.feed(char, TARGET)
        first = document.settle()
        assert document.lines[:first] == before[:first]
        before = document.lines


@given(TEXTS, st.integers(12, 60))
@examples(150)
def test_no_row_is_wider_than_the_width(text: str, width: int) -> None:
    for line in fed(text, coloured(text), [], width).lines:
        assert cell_len(line.text) <= max(width, 2) or cell_len(line.text) <= width + 14  # nested markers only


@pytest.mark.parametrize("width", [8, 20, 40, 100])
def test_sample_in_every_cut(width: int) -> None:
    prov = coloured(SAMPLE)
    want = reference(SAMPLE, prov, width)
    assert fed(SAMPLE, prov, list(range(1, len(SAMPLE))), width).lines == want
    for cut in range(0, len(SAMPLE), 7):
        assert fed(SAMPLE, prov, [cut], width).lines == want


def test_resize_equals_a_fresh_document() -> None:
    prov = coloured(SAMPLE)
    document = fed(SAMPLE, prov, list(range(0, len(SAMPLE), 5)), 70)
    document.resize(33)
    assert document.lines == reference(SAMPLE, prov, 33)


def test_blocks_cover_the_source() -> None:
    document = fed(SAMPLE, coloured(SAMPLE), list(range(0, len(SAMPLE), 3)))
    document.settle()
    assert "".join(SAMPLE[b.start : b.end] for b in document.blocks) == SAMPLE
    assert document.blocks[-1].last == len(document.lines)


def test_open_fence_is_plain_and_keeps_its_rows_when_it_closes() -> None:
    document = Document(40)
    document.feed("```python\ndef f(): pass\n", DRAFT)
    plain = document.lines
    assert {run.style for line in plain for run in line.runs} == {"code-label", "pre"}
    document.feed("```\n", DRAFT)
    assert [line.text for line in document.lines] == [line.text for line in plain]
    assert any("syn-keyword" in run.style for line in document.lines for run in line.runs)


def test_forming_fence_marker_is_not_shown() -> None:
    document = Document(40)
    document.feed("text\n\n``", TARGET)
    assert [line.text for line in document.lines] == ["text"]


def test_o53_wide_text_wraps_by_cells_and_copies_without_newlines() -> None:
    text = "漢字とカタカナを ASCII と混ぜた長い段落です。" * 8
    streamed = fed(text, coloured(text), list(range(1, len(text), 3)), 40).lines
    assert streamed == reference(text, coloured(text), 40)
    assert all(cell_len(line.text) <= 40 for line in streamed)
    assert len(streamed) > 5
    copied = streamed[0].text + "".join(line.joint + line.text for line in streamed[1:])
    assert copied == text


def test_o52_bracketed_text_is_literal() -> None:
    for nasty in ("[/foo]", "[bold", "[a](b)", "[red]x[/red]", "[[x]]", "]", "[@click=app.quit]x[/]"):
        shown = "".join(line.text for line in fed(nasty, coloured(nasty), []).lines)
        assert shown.replace(" (b)", "") in (nasty, "a")


@given(TEXTS, st.integers(20, 90))
@examples(60)
def test_parts_are_rows_of_the_document(text: str, width: int) -> None:
    """What the block cursor stops at: in order, a blank row apart, to the end."""
    document = Document(width)
    document.feed(text, 1)
    document.finish()
    document.settle()
    parts = document.parts()
    assert [p.first for p in parts] == [0, *(p.last + 1 for p in parts)][: len(parts)]
    assert [p.start for p in parts] == sorted(p.start for p in parts)
    assert all(p.start < p.end <= len(document.text) for p in parts)
    assert not parts or parts[-1].last == len(document)

"""What was sent before survives, byte for byte, and damage costs a line at most."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tui.conversation.input_history import History
from tui.widgets.composer.characters import next_boundary, previous_boundary


def test_inputs_survive(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.jsonl"
    texts = ["C:\\temp\\new", "two\nlines", "\\d+\\s", "日本語 👩‍👩‍👧‍👦", "last"]
    first = History(path)
    for text in [*texts, "last", "  "]:
        first.add(text)
    assert History(path).items == texts


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'"good"\nnot json\n\xff\xfe\n{"a": 1}\n"also"\n"half')
    assert History(path).items == ["good", "also"]


def test_back_and_forward_keep_the_draft() -> None:
    history = History()
    history.add("one")
    history.add("two")
    assert history.back("draft") == "two"
    assert history.back("two") == "one"
    assert history.back("one") is None
    assert history.forward() == "two"
    assert history.forward() == "draft"
    assert history.forward() is None


def test_search() -> None:
    history = History()
    for text in ("alpha", "beta", "Alphabet"):
        history.add(text)
    assert history.search("alpha") == 2
    assert history.search("alpha", 2) == 0
    assert history.search("none") is None


@given(st.text(st.sampled_from("aé漢👩\u200d👧🇫🇷\u0301🏽\ufe0f"), max_size=20))
def test_graphemes_partition_the_text(text: str) -> None:
    at, bounds = 0, [0]
    while at < len(text):
        at = next_boundary(text, at)
        bounds.append(at)
    assert bounds[-1] == len(text)
    assert [previous_boundary(text, b) for b in bounds[1:]] == bounds[:-1]

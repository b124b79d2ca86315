"""Reasoning and answer are told apart in the same way however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.reasoning import BRACKET, CHANNEL, MESSAGES, THINK, Style, ThinkSplitter


def split(pieces: list[str], style: Style = THINK, **kw: bool) -> list[tuple[str, str]]:
    """Runs of one kind, joined."""
    splitter = ThinkSplitter(style, **kw)
    out: list[tuple[str, str]] = []
    for segment in [s for p in pieces for s in splitter.feed(p)] + splitter.flush():
        if out and out[-1][0] == segment.kind:
            out[-1] = (segment.kind, out[-1][1] + segment.text)
        else:
            out.append((segment.kind, segment.text))
    return out


CASES: list[tuple[str, Style, dict[str, bool], list[tuple[str, str]]]] = [
    ("<think>\nhm\n</think>\n\nyes", THINK, {}, [("reasoning", "hm"), ("answer", "yes")]),
    ("\n<think>hm</think>yes ", THINK, {}, [("reasoning", "hm"), ("answer", "yes ")]),
    ("hm\n</think>\n\nyes", THINK, {"inside": True}, [("reasoning", "hm"), ("answer", "yes")]),
    ("hm, hm", THINK, {"inside": True}, [("reasoning", "hm, hm")]),
    ("  plain\n text", THINK, {}, [("answer", "  plain\n text")]),
    ("<think></think>yes", THINK, {}, [("answer", "yes")]),
    ("</think>\nyes", THINK, {}, [("answer", "yes")]),
    ("say <think> and </think> to it", THINK, {}, [("answer", "say <think> and </think> to it")]),
    (
        "<think>a</think>b\n<think>c</think>d",
        THINK,
        {},
        [("reasoning", "a"), ("answer", "b\n"), ("reasoning", "c"), ("answer", "d")],
    ),
    ("a < b <thi", THINK, {}, [("answer", "a < b <thi")]),
    ("[THINK]hm[/THINK]yes", BRACKET, {}, [("reasoning", "hm"), ("answer", "yes")]),
    ("<|channel>thought\nhm<channel|>yes", CHANNEL, {}, [("reasoning", "hm"), ("answer", "yes")]),
    (
        " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes",
        MESSAGES,
        {"header": True},
        [("reasoning", "hm"), ("answer", "yes")],
    ),
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
        MESSAGES,
        {"header": True},
        [("reasoning", "hm"), ("answer", "yes")],
    ),
    ("just text", MESSAGES, {"header": True}, [("answer", "just text")]),
    ("   ", THINK, {}, [("answer", "   ")]),
    ("", THINK, {"inside": True}, []),
]


@pytest.mark.parametrize(("text", "style", "start", "want"), CASES)
def test_whole_and_letter_by_letter(
    text: str, style: Style, start: dict[str, bool], want: list[tuple[str, str]]
) -> None:
    assert split([text], style, **start) == want
    assert split(list(text), style, **start) == want


PIECES = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "\n",
            " ",
            "a",
            "b<",
            "<thi",
            "nk>",
            "</",
            "x\n",
            "<|start|>",
            "<|message|>",
            "to=self",
            "<|eom|>",
        ]
    ),
    max_size=14,
)


@given(PIECES, st.data(), st.sampled_from([THINK, MESSAGES]), st.booleans())
def test_any_cut_gives_the_same(pieces: list[str], data: st.DataObject, style: Style, inside: bool) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(parts, style, inside=inside) == split([text], style, inside=inside)


@given(PIECES, st.booleans())
def test_offsets_point_into_the_raw_text(pieces: list[str], inside: bool) -> None:
    text, splitter = "".join(pieces), ThinkSplitter(inside=inside)
    for segment in [s for p in pieces for s in splitter.feed(p)] + splitter.flush():
        assert text[segment.start : segment.start + len(segment.text)] == segment.text

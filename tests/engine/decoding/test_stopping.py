"""Text and endings, token by token: characters are whole, stop strings never show, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import ByteTokenizer
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.tokenizer import REPLACEMENT, Tokenizer
from engine.decoding.stopping import Finish
from engine.types import Piece, Source
from tests.cases import examples

GOLDEN = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"
NASTY = "héllo — 中文字 👩‍👩‍👧‍👦 🇩🇪 e\u0301 \u200d\ufe0f [/foo] \x1b[2J ‮rtl‬\ttab\r\n"


def finish(**kwargs: Any) -> Finish:
    defaults: dict[str, Any] = {"stop_ids": frozenset(), "stop": (), "max_tokens": 10_000, "room": 10_000}
    return Finish(ByteTokenizer(), **{**defaults, **kwargs})  # pyright: ignore[reportArgumentType]


def feed(end: Finish, ids: list[int]) -> list[Piece]:
    out: list[Piece] = []
    for i, token in enumerate(ids):
        reason = end.push(token, Source.TARGET, i, 0)
        out += end.take()
        if reason:
            break
    else:
        end.abandon()
        out += end.take()
    return out


@examples(200)
@given(text=st.text(max_size=40) | st.just(NASTY))
def test_pieces_join_to_the_text_and_hold_whole_characters(text):
    """Bytes one at a time: no replacement marks for valid text, one piece a token (O29)."""
    ids = list(text.encode(errors="surrogatepass"))
    if REPLACEMENT in bytes(ids).decode(errors="replace"):
        return
    pieces = feed(finish(), ids)
    assert "".join(p.text for p in pieces) == text
    assert [p.token for p in pieces] == ids
    assert not any(REPLACEMENT in p.text for p in pieces)


def test_half_a_character_at_the_end_becomes_one_mark():
    ids = list("ab€".encode())[:-1]
    pieces = feed(finish(), ids)
    assert "".join(p.text for p in pieces) == "ab" + REPLACEMENT
    assert len(pieces) == len(ids)


@examples(300)
@given(
    text=st.text(alphabet="abcx", max_size=30),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_cut_exactly_and_near_misses_are_released(text, stops):
    """Overlapping stops included; what looked like a beginning is given out when it was none (O38)."""
    ids = list(text.encode())
    end = finish(stop=tuple(stops))
    shown = "".join(p.text for p in feed(end, ids))
    ends = {s: text.find(s) for s in stops if s in text}
    if not ends:
        assert shown == text
        return
    # The stop that is complete first ends it; among those, the one that began first.
    done = min(at + len(s) for s, at in ends.items())
    cut = min(at for s, at in ends.items() if at + len(s) == done)
    assert shown == end.text == text[:cut]
    assert end.reason == "stop"
    assert end.stop in stops


@examples(100)
@given(text=st.text(alphabet="abx", max_size=20), stop=st.text(alphabet="ab", min_size=2, max_size=4))
def test_nothing_shown_is_ever_part_of_a_stop(text, stop):
    """At every moment, what was given out does not reach into the stop that comes later."""
    end = finish(stop=(stop,))
    shown = ""
    for i, token in enumerate(text.encode()):
        reason = end.push(token, Source.TARGET, i, 0)
        shown += "".join(p.text for p in end.take())
        assert stop not in shown
        if reason:
            assert shown == text[: text.find(stop)]
            return


def test_stop_before_length_and_length_before_context():
    end = finish(stop_ids=frozenset([65]), max_tokens=3)
    assert [end.push(t, Source.TARGET, i, 0) for i, t in enumerate([66, 66, 65])] == [None, None, "stop"]
    assert end.stop == 65
    end = finish(max_tokens=2, room=2)
    assert [end.push(66, Source.TARGET, i, 0) for i in range(2)] == [None, "length"]
    end = finish(max_tokens=9, room=2)
    assert [end.push(66, Source.TARGET, i, 0) for i in range(2)] == [None, "context"]


def test_a_stop_id_shows_no_text():
    pieces = feed(finish(stop_ids=frozenset([258])), [104, 105, 258, 104])
    assert [p.text for p in pieces] == ["h", "i", ""]


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    from transformers import AutoTokenizer

    return Tokenizer(AutoTokenizer.from_pretrained(str(GOLDEN)))


def test_a_real_tokenizer_streams_like_it_decodes(real):
    for text in (NASTY, "plain", "a" * 50, "中" * 30):
        ids = real.encode(text)
        stream = real.stream()
        assert "".join(stream.push(t) for t in ids) + stream.flush() == real.decode(ids) == text


def test_control_tokens_cannot_be_smuggled_in_by_text(real):
    assert 257 not in real.encode("<|im_start|>system")
    assert real.encode("<|im_start|>", special=True) == [257]
    assert real.decode(real.encode("<|im_start|>")) == "<|im_start|>"

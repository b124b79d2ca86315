"""Torn mouse reports never become text, text never becomes a mouse report, and a wheel is a wheel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser

from tui.terminal.input_filter import TORN, WAIT, KeyFilter, Wheel


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def key(char: str) -> events.Key:
    return events.Key("escape", "\x1b") if char == "\x1b" else events.Key(char, char)


def typed(pieces: list[str], pause: float, wheel: bool = False) -> str:
    """What reaches the app of keys that come in pieces."""
    clock = Clock()
    keys = KeyFilter(wheel=wheel, clock=clock)
    out: list[str] = []

    def take(messages: list[object]) -> None:
        out.extend(m.character or m.key for m in messages if isinstance(m, events.Key))

    for piece in pieces:
        for char in piece:
            take([*keys.feed(key(char))])
        clock.now += pause
        take([*keys.late()])
    clock.now += TORN + 1
    take([*keys.late()])
    assert keys.due is None
    return "".join(out)


REPORT = "\x1b[<35;112;30M"


@pytest.mark.parametrize("cut", range(2, len(REPORT)))
def test_a_report_torn_anywhere_is_dropped(cut: int) -> None:
    body = REPORT[1:]  # the parser takes the escape and hands the rest over as keys
    assert typed([body[: cut - 1], body[cut - 1 :]], pause=0.03) == ""
    assert typed(["ab", body, "cd"], pause=0.2) == "abcd"
    assert typed(["ab" + body + body + "cd"], pause=0) == "abcd"


def test_the_rest_of_a_report_may_be_late_or_never_come() -> None:
    assert typed(["[<35;1", "12;30M", "x"], pause=0.5) == "x"
    assert typed(["[<35;1"], pause=TORN * 2) == ""
    assert typed(["\x1b", "[<35;112;30M"], pause=WAIT / 2) == ""


@given(st.lists(st.text("ab[<;M35m\x1b ", max_size=8), max_size=4), st.sampled_from([0, WAIT / 2, WAIT * 2]))
def test_nothing_else_is_lost(pieces: list[str], pause: float) -> None:
    import re

    whole = "".join(pieces)
    kept = typed(pieces, pause)
    if re.search(r"\[<\d+;", whole):
        return
    assert kept == whole


def test_escape_and_bracket_come_at_once_when_something_follows_and_soon_when_nothing_does() -> None:
    clock = Clock()
    keys = KeyFilter(clock=clock)
    assert keys.feed(key("\x1b")) == []
    assert keys.due == WAIT
    clock.now = WAIT
    (message,) = keys.late()
    assert isinstance(message, events.Key) and message.key == "escape"
    assert keys.feed(key("[")) == []
    assert len(keys.feed(key("x"))) == 2
    paste = events.Paste("[<35;1;1M")
    assert keys.feed(key("[")) == []
    assert keys.feed(paste)[-1] is paste


def test_a_wheel_in_arrow_keys() -> None:
    clock = Clock()
    keys = KeyFilter(wheel=True, clock=clock)
    arrow = events.Key("up", None)
    assert keys.feed(arrow) == []
    turned = [*keys.feed(events.Key("up", None)), *keys.feed(events.Key("up", None))]
    assert [type(m) for m in turned] == [Wheel, Wheel, Wheel]
    clock.now += 0.03  # a held key repeats no faster
    assert keys.feed(arrow) == []
    clock.now += 0.03
    assert keys.late() == [arrow]
    assert keys.feed(events.Key("down", None)) == []
    assert [m.key for m in keys.feed(key("x")) if isinstance(m, events.Key)] == ["down", "x"]
    assert KeyFilter().feed(arrow) == [arrow]


def test_the_parser_still_hands_torn_reports_over_as_keys() -> None:
    """Why the filter exists; when this fails, Textual has learnt it."""
    parser = XTermParser(False)
    assert list(parser.feed("\x1b[<35;1")) == []
    import time

    time.sleep(0.15)
    assert "".join(e.character or "" for e in parser.tick() if isinstance(e, events.Key)) == "[<35;1"

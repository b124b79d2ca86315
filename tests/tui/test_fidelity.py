"""Whatever rounds come, every number on the screen adds up: the text, the sources, the legend, the ribbon, the header.

Rounds are random: full and empty blocks, cut by a stop, trimmed by a constraint, of drafters that take turns and are
switched; the answer ends well, is cancelled, fails, or is lost with its program; and it is stored and read back.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Event, Failed, Finished, Piece, Prefilled, Round, Source, Tokens, Usage
from tests.cases import examples
from tests.tui.drive import running, shown
from tests.tui.fakes import FakeDrafter, FakeEngine
from tui.conversation.answer_json import dump_answer, load_answer
from tui.conversation.chat import Answer, Status
from tui.conversation.stats import RIBBON
from tui.screens.inspector import facts
from tui.widgets.transcript.answer_footer import GLYPHS, legend

CHAINS = ("none", "lookup", "dspark", "lookup+dspark")
SOURCES = {"none": Source.TARGET, "lookup": Source.LOOKUP, "dspark": Source.DRAFT}


@dataclass(frozen=True)
class Shape:
    chain: str
    drafted: int
    accepted: int
    cut: int
    """Committed tokens that a stop took away."""
    by_lookup: bool


SHAPES = st.builds(
    Shape, st.sampled_from(CHAINS), st.integers(0, 7), st.integers(0, 7), st.integers(0, 3), st.booleans()
)
ENDS = st.sampled_from(["stop", "length", "cancel", "failed", "lost", "going on"])
WORDS = ("a", " word", "", "\n\n", "漢", "👩‍👩‍👧", " **b**", "\x1b[2J", "e\u0301", "```\n")


def stream(shapes: list[Shape], end: str) -> list[Event]:
    """Events as the engine would send them."""
    events: list[Event] = [Prefilled("r", 5, 0, 1.0)]
    at = 0
    for index, shape in enumerate(shapes):
        parts = [p for p in shape.chain.split("+") if p != "none"]
        part = parts[0 if shape.by_lookup else -1] if parts else "none"
        drafted = tuple(range(100, 100 + shape.drafted)) if index and parts else ()
        accepted = min(shape.accepted, len(drafted))
        tokens = (*drafted[:accepted], 7)
        if index == len(shapes) - 1:  # only the last round can be cut
            tokens = tokens[: max(1, len(tokens) - shape.cut)]
        accepted = min(accepted, len(tokens))
        source = SOURCES[part] if drafted else Source.TARGET
        events.append(
            Round("r", index, 5 + at, tokens, drafted, accepted, source, part if drafted else shape.chain, 7, 1.0, 20.0,
                  0.5, 1 + len(drafted), chain=shape.chain)
        )  # fmt: skip
        pieces = tuple(
            Piece(WORDS[(at + i) % len(WORDS)], source if i < accepted else Source.TARGET, token, 5 + at + i, index)
            for i, token in enumerate(tokens)
        )
        if end == "cancel" and index == len(shapes) - 1:
            pieces = pieces[:-1]  # the text of the last token was still held back
        if pieces:
            events.append(Tokens("r", pieces))
        at += len(tokens)
    if end == "failed":
        events.append(Failed("r", RuntimeError("no memory"), Usage(completion=at)))
    elif end in ("stop", "length", "cancel"):
        events.append(Finished("r", end, Usage(completion=at)))  # type: ignore[arg-type]
    return events


def check(answer: Answer, rounds: list[Round]) -> None:
    tally = answer.tally
    committed = sum(len(r.tokens) for r in rounds)
    assert tally.tokens == committed == sum(tally.by_source.values())
    assert {s: n for s, n in tally.by_source.items() if n} == Counter(s for r in rounds for s in r.sources)
    assert sum(tally.legend.values()) == (100 if committed else 0)
    assert [t.height for t in tally.ticks] == [len(r.tokens) for r in rounds][-RIBBON:]
    assert sum(t.switched for t in tally.ticks) == sum(a.chain != b.chain for a, b in itertools.pairwise(rounds))
    assert tally.accepted == sum(r.accepted for r in rounds if r.index)
    assert tally.drafted == sum(len(r.drafted) for r in rounds)
    assert len(answer.prov) == len(answer.text)
    assert "\x1b" not in answer.text
    row = legend(answer).text
    shares = [
        int(part.split("%")[0]) for glyph in GLYPHS.values() for part in [row.split(f"{glyph} ")[1].split(" ")[1]]
    ]
    assert sum(shares) == (100 if committed else 0)


@given(st.lists(SHAPES, min_size=1, max_size=40), ENDS)
@examples(200)
def test_every_number_adds_up(shapes: list[Shape], end: str) -> None:
    answer, rounds = Answer(), []
    for event in stream(shapes, end):
        list(answer.take(event))
        if isinstance(event, Round):
            rounds.append(event)
            check(answer, rounds)
    check(answer, rounds)
    held_back = end == "cancel"
    assert len(answer.spans) == answer.tally.tokens - held_back
    assert [s.token for s in answer.spans] == [t for r in rounds for t in r.tokens][: len(answer.spans)]
    if end != "going on" and end != "lost":
        assert answer.status.over
        assert answer.usage.completion == answer.tally.tokens
    for index in range(0, len(answer.spans), 7):
        assert facts(answer, index, None).plain
    back = load_answer(dump_answer(answer))
    check(back, back.rounds)
    assert (back.tally, bytes(back.prov), back.spans) == (answer.tally, bytes(answer.prov), answer.spans)
    assert back.status is (Status.LOST if end in ("lost", "going on") else answer.status)


@pytest.mark.parametrize("reason", ["its vocabulary has 32000 entries", "[/b] \x1b[2J it is a file of another model"])
async def test_a_drafter_that_is_off_says_why_in_the_header(reason: str) -> None:
    engine: Any = FakeEngine(manual=True, drafter="dspark")
    engine.drafters = [FakeDrafter("none", Source.TARGET), FakeDrafter("dspark", available=False, reason=reason)]
    async with running(engine) as (app, pilot, _):
        await pilot.pause()
        header = shown(app).split("\n")[0]
        assert "dspark (off: " + reason.split("\x1b")[0][:20].rstrip() in header
        assert "\x1b" not in header

"""Full-screen charts and the comparison of drafters: the same numbers as panels, legends and benchmarks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Round, Source
from tests.tui.fakes import script
from tui.conversation import compare
from tui.conversation.chat import Answer
from tui.conversation.stats import Tally, moving
from tui.screens.charts import maximised
from tui.widgets.block_charts import AXIS, Level, columns, number
from tui.widgets.panels import acceptance, calibration, drafters, positions, rate
from tui.widgets.panels.base import Figures
from tui.widgets.panels.positions import survival
from tui.widgets.side_bar import PANELS

CURVES: Any = SimpleNamespace(
    curve=[(1, 134.0), (2, 143.0), (4, 149.0), (8, 156.0), (16, 206.0)], draft=[(1, 10.0), (3, 12.0), (7, 15.0)],
    knee=8, cap=7, rate=12.0, plain=7.1, speedup=1.69, date="2026-11-29", stale=False, reason="",
)  # fmt: skip


def answer(text: str = "word " * 60, **kwargs: Any) -> Answer:
    found = Answer()
    for event in script(text, **kwargs):
        list(found.take(event))
    return found


def figures(*answers: Answer, **more: Any) -> Figures:
    session = Tally()
    for each in answers:
        for round in each.rounds:
            session.add(round)
    turn = answers[-1].tally if answers else Tally()
    return Figures(turn=turn, session=session, drafter="dflash", answers=answers, **more)


def body(content: Any) -> list[str]:
    return content.plain.split("\n")


@given(
    st.lists(st.floats(0, 1e4), max_size=90), st.integers(10, 140), st.integers(3, 40), st.floats(0, 1e4) | st.none()
)
def test_a_chart_never_outgrows_its_room(values: list[float], width: int, height: int, level: float | None) -> None:
    levels = [Level(level, "plain")] if level is not None else []
    drawn = body(columns(values, width, height, levels=levels, names=[str(i) for i in range(len(values))]))
    assert len(drawn) <= height
    assert all(len(row) <= max(width, AXIS + 8) for row in drawn) or drawn == ["nothing yet"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_columns_are_as_high_as_their_values(values: list[float]) -> None:
    rows = body(columns(values, AXIS + len(values), 10, top=1.0))
    for i, value in enumerate(values):
        eighths = sum(" ▁▂▃▄▅▆▇█".index(row[AXIS + i]) for row in rows)
        assert abs(eighths - max(1, value * 80)) <= 1


def test_the_newest_are_shown_where_not_all_fit() -> None:
    row = body(columns([1.0] * 50 + [0.0] * 5, AXIS + 10, 3))[0]
    assert row[AXIS:] == "█████     "


def test_a_level_lies_where_its_value_is() -> None:
    rows = body(columns([10.0, 10.0], 40, 10, levels=[Level(5.0, "plain 5.0")]))
    assert [i for i, row in enumerate(rows) if "plain 5.0" in row] == [5]


def test_numbers_are_short() -> None:
    assert [number(v) for v in (0.851, 3.24, 41.55, 306.2)] == ["0.85", "3.2", "41.5", "306"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.id)
@pytest.mark.parametrize("width", [20, 60, 120])
def test_every_panel_can_be_maximised_with_and_without_figures(panel: Any, width: int) -> None:
    for given_ in (Figures(), figures(answer()), figures(answer(), calibration=CURVES)):
        whole = maximised(panel, given_, width, 20).plain
        assert panel.draw(given_, width).plain in whole
        assert "\x1b" not in whole


def test_the_charts_say_the_numbers_of_the_panels() -> None:
    one = answer(ms=60.0)
    given_ = figures(one, calibration=CURVES)
    tally = one.tally
    assert f"{tally.acceptance:.2f}  moving {tally.ema:.2f}" in maximised(acceptance.PANEL, given_, 80, 20).plain
    assert moving(list(tally.rates))[-1] == tally.ema
    speed = maximised(rate.PANEL, given_, 80, 20).plain
    assert f"mean {tally.rate:.1f}" in speed
    assert "plain 7.1" in speed
    assert sum(tally.seconds) == tally.decoded
    places = given_.session.shown_positions(Source.DRAFT)
    assert survival(places)[0] == places[0].rate
    assert f"{places[1].rate:.2f}" in maximised(positions.PANEL, given_, 80, 20).plain
    curves = maximised(calibration.PANEL, given_, 80, 24).plain
    assert "knee 8" in curves
    assert "12.0 (1.69×)" in curves
    assert compare.table([one], 7.1) in maximised(drafters.PANEL, given_, 80, 24).plain


def test_what_was_not_measured_is_said_and_not_guessed() -> None:
    given_ = figures(answer())
    assert "plain decoding was not measured" in maximised(rate.PANEL, given_, 80, 20).plain
    assert "not measured" in maximised(calibration.PANEL, given_, 80, 20).plain
    table = compare.table(given_.answers)
    assert "×" not in table
    assert "plain decoding was not measured" in table


def test_drafters_are_compared_over_the_conversation() -> None:
    first, second = answer("one two three four " * 6), answer("again and again " * 6, source=Source.LOOKUP)
    second.rounds = [r if r.index == 0 else _chain(r, "lookup+dspark") for r in second.rounds]
    plain = Answer()
    for i in range(20):
        plain.rounds.append(Round("", i, 10 + i, (i,), drafter="none", verify_ms=50.0, width=1))
    answers = [first, second, plain]
    found = {s.name: s for s in compare.standings(answers)}
    assert set(found) == {"dflash", "lookup+dspark", "none"}
    assert found["dflash"].turns == 2, "it also gave the first token of the second answer"
    assert sum(s.tally.tokens for s in found.values()) == sum(len(r.tokens) for a in answers for r in a.rounds)
    assert found["dflash"].tally.acceptance == pytest.approx(first.tally.acceptance)
    measured, how = compare.plain_of(answers, calibrated=999.0)
    assert measured == pytest.approx(20.0)
    assert "19 plain rounds here" in how, "what happened here is worth more than the calibration"
    rows = {row[0]: row for row in compare.rows(answers)}
    assert rows["none"][-1] == "1.00×"
    expected = first.tally.decoded / first.tally.decode_ms * 1000 / 20.0
    assert float(rows["dflash"][-1].rstrip("×")) == pytest.approx(expected, rel=0.01)


def _chain(round: Round, name: str) -> Round:
    from dataclasses import replace

    return replace(round, chain=name)


def test_an_empty_conversation_compares_nothing() -> None:
    assert compare.table([]) == "There is no answer yet to compare drafters by."

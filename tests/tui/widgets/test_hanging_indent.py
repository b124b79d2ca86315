"""What is said about a name stands beside it, however often it wraps."""

from __future__ import annotations

import pytest
from textual.content import Content
from textual.widgets import OptionList

from tests.tui.drive import running
from tui.screens.help import help_text
from tui.widgets.hanging_indent import Entry, Hanging


def at(hanging: Hanging, width: int) -> list[str]:
    lines = [line.plain for entry in hanging.entries for line in entry.lines(width)]
    assert hanging.get_height({}, width) == len(lines)
    return lines


def test_a_note_that_wraps_goes_on_below_its_first_word() -> None:
    entry = Entry(Content("top-p = 1  "), Content("keep the smallest set of tokens with this probability"), 14)
    assert at(Hanging([entry]), 46) == [
        "top-p = 1     keep the smallest set of tokens",
        "              with this probability",
    ]
    assert at(Hanging([entry]), 30)[0].startswith("top-p = 1     keep the"), "with no room it runs on below"
    assert not at(Hanging([entry]), 30)[1].startswith(" ")


def test_a_long_name_moves_its_own_note_only() -> None:
    rows = Hanging([Entry(Content("short "), Content("one"), 8), Entry(Content("a longer name "), Content("two"), 8)])
    assert at(rows, 60) == ["short   one", "a longer name two"]


@pytest.mark.parametrize("width", [20, 40, 73, 96])
def test_the_help_stays_in_its_columns(width: int) -> None:
    help = help_text({})
    lines = at(help, width)
    assert all(len(line) <= width for line in lines)
    said = "".join("".join(lines).split())
    for entry in help.entries:
        assert "".join(f"{entry.name.plain}{entry.note.plain}".split()) in said, "nothing is lost"


async def test_a_scroll_bar_takes_no_room_from_a_list_that_has_reckoned_its_rows() -> None:
    """A list remembers how many rows each entry takes; at another width the last ones would not be shown."""
    async with running() as (app, pilot, _):
        await pilot.press("f8", *"seed")
        await pilot.pause()
        options = app.screen.query_one(OptionList)
        assert options.max_scroll_y == 0
        width = options.scrollable_content_region.width
        await pilot.press(*["backspace"] * 4)
        await pilot.pause()
        assert options.max_scroll_y > 0
        assert options.scrollable_content_region.width == width

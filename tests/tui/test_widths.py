"""Whatever people and models write, rows stay as wide as the screen and nothing but text reaches the terminal."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events

from engine.config import Config
from tests.tui.drive import ask, running, wait_until
from tests.tui.fakes import FakeDrafter, FakeEngine, script
from tui.app import ChatApp
from tui.commands.completion import Candidate
from tui.conversation import importer
from tui.conversation.images import Attachment
from tui.conversation.project_files import mention
from tui.conversation.session import ChatSession
from tui.settings import presets
from tui.widgets.composer.attachments import rows
from tui.widgets.composer.characters import next_boundary, previous_boundary
from tui.widgets.composer.paste_chips import Chips
from tui.widgets.composer.suggestions import Suggestions
from tui.widgets.header import HeaderState, header

PIECES = (
    *("word ", "漢字", "한국어 ", "ｆｕｌｌ", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇯🇵", "👍🏽"),
    *("e\u0301\u0323", "नमस्ते ", "ก็", "שלום ", "مرحبا "),
    *("\t", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u202e", "\u2066", "\u2028"),
    *("\x1b[2J", "\x1b]52;c;aGk=\x07", "\x9b6n", "\x00", "\x07", "\x7f", "\x85"),
    *("[/b]", "[red]", "![", "`", "```\n", "| a | b |\n", "# ", "- ", "\n", "/", "@", "\"'"),
)  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def safe(text: str) -> bool:
    """Nothing that a terminal would obey."""
    return not any(
        ord(c) < 32 or 0x7F <= ord(c) <= 0x9F or c in "\u202a\u202b\u202d\u202e\u2066\u2067\u2068" for c in text
    )


def check(app: ChatApp, why: str) -> None:
    width = app.size.width
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        assert safe(strip.text), (why, y, strip.text)
        assert strip.cell_length == width, (why, y, strip.cell_length, strip.text)
        assert sum(cell_len(segment.text) for segment in strip) == width, (why, y, strip.text)


@given(TEXT, st.integers(0, 140))
def test_the_header_is_one_row(text: str, width: int) -> None:
    state = HeaderState(text, text, "draft", "k=3", text, text, 4000, 8000)
    content = header(state, width)
    assert safe(content.plain)
    assert width < 40 or content.cell_length <= width


@given(st.lists(TEXT, max_size=5), st.integers(1, 140))
def test_attached_files_are_a_row_each(names: list[str], width: int) -> None:
    content = rows([Attachment(name, i % 2 == 1) for i, name in enumerate(names)], width)
    lines = content.plain.split("\n")
    assert len(lines) <= 3
    assert all(safe(line) and (width < 20 or cell_len(line) <= width) for line in lines)


@given(TEXT)
def test_names_of_files_and_presets_are_written_safely_or_not_at_all(text: str) -> None:
    written = mention(text)
    assert written is None or (safe(written) and "\n" not in written)
    session = ChatSession(Config())
    said = ""
    try:
        said = presets.save(session, text)
    except presets.UsageError as error:
        said = str(error)
    assert safe(said)
    assert safe(presets.listing(session).replace("\n", ""))


@given(TEXT, TEXT)
def test_a_chip_never_splits_a_visible_character(before: str, after: str) -> None:
    chips = Chips()
    label = chips.add("x" * 2000)
    line = f"{before}{label}{after}".replace("\n", " ")
    for column in range(len(line) + 1):
        span = chips.around(line, column)
        assert span is None or line[slice(*span)] == label
    at, seen = 0, 0
    while at < len(line):
        step = next_boundary(line, at)
        assert step > at
        assert previous_boundary(line, step) == at
        at, seen = step, seen + 1
    assert seen <= len(line)


WHOLE = ["".join(PIECES)]
DICE = random.Random(61)
MIXED = ["".join(DICE.choices(PIECES, k=DICE.randrange(1, 24))) for _ in range(5)]


@pytest.mark.parametrize(
    ("size", "texts"),
    [
        pytest.param((61, 18), WHOLE, id="narrow"),
        pytest.param((120, 36), [*WHOLE, "漢" * 300], id="wide", marks=pytest.mark.slow),
        pytest.param((61, 18), MIXED[:3], id="mixed", marks=pytest.mark.slow),
        pytest.param((61, 18), [*MIXED[3:], "漢" * 300], id="more", marks=pytest.mark.slow),
    ],
)
async def test_every_place_that_shows_foreign_text(size: tuple[int, int], texts: list[str]) -> None:
    engine = FakeEngine(manual=True)
    engine.drafters.append(FakeDrafter(texts[0], available=False, reason=texts[-1]))
    async with running(engine, size=size) as (app, pilot, _):
        for text in texts:
            app.main.composer.post_message(events.Paste(text))
            await pilot.pause()
            check(app, "a paste")
            await pilot.press("left", "left", "right", "backspace", "home", "end")
            check(app, "moving")
            app.main.area.suggestions.offer([Candidate(0, text, text, text, first=True)] * 3)
            await pilot.pause()
            check(app, "offers")
            app.main.area.suggestions.offer(())
            app.session.queued = text
            app.main.area.show_queue()
            app.main.say(text)
            await pilot.pause()
            check(app, "what waits, and a notice")
            app.session.queued = None
            app.main.area.show_queue()
            app.main.composer.load_text("")
        for text in texts:
            ticket = await ask(pilot, engine, f"q {text}")
            ticket.prefilled()
            app.session.chat.title = text
            ticket.say(*script(text, size=3))
            await pilot.pause(0.05)
            check(app, "an answer that streams")
            ticket.finish()
            await wait_until(pilot, lambda: not app.session.busy and not app.main.conversation.events.awake)
            check(app, "an answer")
        for key in ("ctrl+s", "f3", "f8"):
            await pilot.press(key)
            await pilot.pause(0.1)
            check(app, key)
            await pilot.press("escape")
            await pilot.pause()


async def test_stored_and_imported_chats_too() -> None:
    text = "".join(PIECES)
    async with running(size=(80, 24)) as (app, pilot, _):
        turn = {"user": text, "text": text, "model": text, "error": text, "images": [text]}
        chat = importer.parse(json.dumps({"title": text, "system": text, "turns": [turn, turn]}))
        await app.main.show_chat(app.library.keep(chat))
        await pilot.pause()
        check(app, "a chat from elsewhere")
        await pilot.press("ctrl+s")
        await pilot.pause(0.2)
        check(app, "the list of chats")


async def test_the_list_above_the_message_is_cut_to_the_screen() -> None:
    async with running(size=(40, 16)) as (app, pilot, _):
        app.main.area.suggestions.offer([Candidate(0, "x", "漢" * 60, "ｆ" * 60)] * 20)
        await pilot.pause()
        assert app.query_one(Suggestions).size.height == 8
        check(app, "twenty wide offers")

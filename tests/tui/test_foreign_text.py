"""Text of strangers, wherever it is shown: literal, and without control sequences."""

from __future__ import annotations

import re

import pytest
from textual.content import Content

from engine.types import Failed, Piece, Source, Tokens
from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import script
from tui.commands import registry
from tui.conversation.chat import Answer, title_of
from tui.engine_api import Progress
from tui.screens.inspector import facts, text_around
from tui.widgets.header import HeaderState, header
from tui.widgets.transcript.answer_footer import footer_lines, thought_lines
from tui.widgets.transcript.message import UserView
from tui.widgets.transcript.placeholder import failure_text, progress_text, welcome_text

MARKUP = [
    *("[/foo]", "[bold", "[a](b)", "[red]x[/red]", "[@click=app.quit]x[/]", "[[", "]]", "[/]", "[$primary]", "\\[x]"),
    *("[b]", "[/b]", "[link=x]y[/link]", "[on red]", "[not bold]", "[#fff]", "[1]", "[x y z]", "[]", "[ ]", "[/ ]"),
    *("{x}", "{0}", "%s", "%(x)s", "<b>", "</b>", "&amp;", "&#27;", "`", "```", "~~~", "* * *", "#", "|a|", ":smile:"),
    *(
        "$x$",
        "\\",
        "\\n",
        "\\x1b[2J",
        "\u202e",
        "\u200d",
        "e\u0301",
        "\ufeff",
        "\U0001f468\u200d\U0001f469",
        "a\u2028b",
    ),
    *("@", "@x", "/x", "//", "![x](y)", "<!-- x -->"),
]
HOSTILE = [
    "\x1b]52;c;aGk=\x07", "\x1b]0;title\x1b\\", "\x1b]8;;http://x\x1b\\", "\x1b[2J", "\x1b[6n", "\x1bP0q\x1b\\",
    "\x1bc", "\x9b2J", "\x9d0;t\x9c", "\x90x\x9c", "\x1b",
    "\x07", "\x08", "\r", "\x7f", "\x85", "\x00", "\x1b[?1049l", "\x1b]",
]  # fmt: skip
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def drawn(text: str) -> list[str]:
    """Everything that shows foreign text and can be asked without an app."""
    answer = Answer()
    for event in script(f"a {text} b"):
        list(answer.take(event))
    list(answer.take(Failed("", RuntimeError(text))))
    user = UserView(text, (text,))
    said = "\n".join(user.line(y).text for y in range(user.rows(400)))
    contents: list[Content] = [
        header(HeaderState(text, text, "draft", "k=1", text, text, 1, 2), 200),
        progress_text(Progress(text, 1, 2), 100),
        failure_text(text),
        welcome_text(text, text),
        facts(answer, 0, lambda ids: text),
        text_around(answer, 0),
    ]
    lines = [*footer_lines(answer, 60), *thought_lines(answer, 60, True)]
    return [said, *(c.plain for c in contents), *(line.text for line in lines), title_of(text)]


def test_o52_fifty_nasty_strings_are_literal_wherever_text_of_strangers_is_drawn() -> None:
    assert len(MARKUP) >= 50
    for text in MARKUP:
        shown = drawn(text)
        visible = text.replace("\u202e", "").replace("\n", " ")
        if visible.strip() and visible.isascii():
            assert visible in shown[0]
            assert visible in shown[3]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda s: ascii(s)[1:-1])
def test_o54_no_control_sequence_is_drawn_however_it_was_cut(hostile: str) -> None:
    for row in drawn(f"visible{hostile}\ntext"):
        assert not CONTROL.search(row.replace("\n", ""))
    whole = f"before {hostile}\nafter"
    wanted: str | None = None
    for cut in range(len(whole) + 1):
        answer = Answer()
        pieces = [p for p in (whole[:cut], whole[cut:]) if p]
        out = ""
        for i, piece in enumerate(pieces):
            event = Tokens("", (Piece(piece, Source.TARGET, i, i, 0),))
            out += "".join(text for text, _ in answer.take(event))
        assert not CONTROL.search(out)
        assert out.startswith("before ")
        assert out.endswith("after")
        wanted = out if wanted is None else wanted
        assert out == wanted == answer.text


async def test_o52_titles_files_and_notices_are_literal() -> None:
    nasty = "[/foo] [bold \x1b[2J %s"
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "q")
        ticket.prefilled()
        ticket.say(*script("a"))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        for command in (
            f"/rename {nasty}",
            f"/{nasty}",
            f"/image {nasty}",
            f"/export {nasty}",
            f"/theme {nasty}",
            f"/drafter {nasty}",
        ):
            parsed = registry.parse(command)
            if parsed is not None:
                await app.main.action_command(*parsed)
            await pilot.pause()
            assert not CONTROL.search(shown(app).replace("\n", ""))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "[/foo] [bold" in shown(app))
        await pilot.press("escape")
        app.main.say(nasty)
        await pilot.pause()
        assert "[/foo] [bold" in shown(app)

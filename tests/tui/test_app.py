"""The app from the outside: keys in, screen out, a scripted engine behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from textual import events
from textual.message import Message
from textual.message_pump import MessagePump

from engine.config import Config
from engine.errors import ContextOverflow, WeightsMissing
from engine.types import Source
from tests.tui.album import settle
from tests.tui.drive import ask, running, shown, type_text, wait_until
from tests.tui.fakes import FakeDrafter, FakeEngine, script
from tui.app import ChatApp
from tui.conversation.chat import Status
from tui.engine_api import Progress
from tui.options import Options
from tui.widgets.transcript.answer import View
from tui.widgets.transcript.view import Transcript

NASTY = [
    *("[/foo]", "[bold", "[a](b)", "[red]x[/red]", "[@click=app.quit]x[/]", "[[", "]]", "[/]", "[$primary]", "\\[x]"),
    *("{x}", "%s", "<b>", "&amp;", "`", "```", "* * *", "#", "|a|", ":smile:", "\u202e", "\u200d", "e\u0301"),
    *("\x1b[2Jx", "\x1b]52;c;aGk=\x07y", "\x9b2Jz", "\x1b]0;t", "a\tb", "a\rb"),
]


async def test_an_answer_streams_in_colour_and_ends_with_a_legend() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "hello")
        ticket.prefilled()
        ticket.say(*script("The answer is **forty-two** and more."))
        await wait_until(pilot, lambda: "forty-two" in shown(app))
        assert "draft " not in shown(app).split("forty-two")[0].split("You ›")[1]
        ticket.finish()
        await wait_until(pilot, lambda: "tok/round" in shown(app))
        answer = app.session.chat.turns[0].answer
        assert answer.status is Status.DONE
        assert sum(answer.tally.legend.values()) == 100
        assert len(answer.prov) == len(answer.text)


async def test_enter_sends_and_the_newline_keys_do_not() -> None:
    async with running() as (app, pilot, engine):
        for key in ("ctrl+j", "shift+enter", "alt+enter"):
            await type_text(pilot, "line")
            await pilot.press(key)
        await type_text(pilot, "last\\")
        await pilot.press("enter")
        assert app.main.composer.text == "line\nline\nline\nlast\n"
        assert not engine.tickets
        ticket = await ask(pilot, engine, "end")
        assert "line\nline\nline\nlast\nend" in "".join(chr(i) for i in ticket.request.prompt)


async def test_paste_is_one_message_and_keeps_newlines_and_backslashes() -> None:
    text = "first\nC:\\temp\\new \\d+\\s\nthird"
    async with running() as (app, pilot, engine):
        app.main.composer.post_message(events.Paste(text))
        await pilot.pause()
        assert app.main.composer.text == text
        assert not engine.tickets


async def test_fast_keys_with_newlines_are_a_paste_too() -> None:
    async with running() as (app, pilot, engine):
        for char in "ab\rcd\r":
            key = "enter" if char == "\r" else char
            app.main.composer.post_message(events.Key(key, None if char == "\r" else char))
        await wait_until(pilot, lambda: len(engine.tickets) == 1)
        assert app.session.chat.turns[0].user == "ab\ncd"


@pytest.mark.parametrize("glyph", ["👩‍👩‍👧‍👦", "🇫🇷", "e\u0301", "👍🏽", "漢", "x"])
async def test_one_key_is_one_visible_character(glyph: str) -> None:
    async with running() as (app, pilot, _):
        await type_text(pilot, f"a{glyph}b")
        await pilot.press("left", "left")
        assert app.main.composer.cursor_location == (0, 1)
        await pilot.press("right", "backspace")
        assert app.main.composer.text == "ab"


async def test_history_comes_back_with_up_and_keeps_the_draft() -> None:
    async with running(FakeEngine()) as (app, pilot, engine):
        await ask(pilot, engine, "first")
        await wait_until(pilot, lambda: not app.session.busy)
        await type_text(pilot, "draft")
        await pilot.press("up")
        assert app.main.composer.text == "first"
        await pilot.press("down")
        assert app.main.composer.text == "draft"


async def test_escape_keeps_the_partial_answer_and_marks_it() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "question")
        ticket.prefilled()
        ticket.say(*script("Half an answer"))
        await wait_until(pilot, lambda: "Half an answer" in shown(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.pause(0.1)
        assert "Half an answer" in shown(app)
        assert "stopped" in shown(app)
        assert "question" in shown(app)
        second = await ask(pilot, engine, "next")
        assert "Half an answer" in "".join(chr(i) for i in second.request.prompt)


async def test_stop_before_the_first_word_keeps_the_message_on_screen_and_in_the_history() -> None:
    async with running() as (app, pilot, engine):
        await ask(pilot, engine, "question")
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: not app.session.busy)
        await wait_until(pilot, lambda: "stopped before the first word" in shown(app))
        assert "question" in shown(app)
        await pilot.press("up")
        assert app.main.composer.text == "question"
        second = await ask(pilot, engine, " again")
        assert "".join(chr(i) for i in second.request.prompt).count("<user>") == 1


async def test_a_message_sent_while_answering_is_queued_and_then_sent() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "one")
        ticket.prefilled()
        await type_text(pilot, "two")
        await pilot.press("enter")
        await pilot.pause()
        assert "queued: two" in shown(app)
        ticket.say(*script("First."))
        ticket.finish()
        await wait_until(pilot, lambda: len(engine.tickets) == 2)
        assert "queued" not in shown(app)


async def test_shift_tab_switches_the_drafter_in_mid_answer() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script("Some words here"))
        await pilot.press("shift+tab")
        assert ticket.used == ["none"]
        assert engine.drafter == "none"
        await pilot.press("shift+tab", "shift+tab")
        assert engine.drafter == "dflash"  # dspark cannot run and is left out
        await wait_until(pilot, lambda: "its vocabulary" in shown(app))


async def test_a_switch_leaves_a_tick_in_the_ribbon() -> None:
    from dataclasses import replace

    from tui.widgets.ribbon import Ribbon

    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        first = script("one two three four five")
        ticket.say(*first)
        rounds = [e for e in first if hasattr(e, "drafted")]
        ticket.say(replace(rounds[-1], index=9, drafter="lookup", source=Source.LOOKUP))
        ticket.finish()
        await wait_until(pilot, lambda: "╎" in str(app.query_one(Ribbon).render()))


async def test_views_cycle_and_the_trace_shows_rejected_drafts() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script("**Bold** words and some more of them"))
        ticket.finish()
        await wait_until(pilot, lambda: "tok/round" in shown(app))
        assert "**" not in shown(app)
        await pilot.press("f4")
        assert app.main.transcript.view is View.MARKDOWN
        await pilot.press("f4")
        await pilot.pause()
        assert "**" in shown(app)
        assert chr(9000) in shown(app)
        await pilot.press("f4")
        assert app.main.transcript.view is View.SOURCE


async def test_o59_scrolling_up_while_text_streams_keeps_the_view() -> None:
    async with running(size=(80, 24)) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script("\n\n".join(f"line {i}" for i in range(60))))
        await wait_until(pilot, lambda: "line 59" in shown(app))
        await pilot.press("pageup")
        await pilot.pause()
        before = app.main.transcript.scroll_offset.y
        for i in range(50):
            ticket.say(*[e for e in script(f"\n\nmore {i}") if not hasattr(e, "drafted")])
        await wait_until(pilot, lambda: "new tokens" in shown(app))
        await pilot.pause(0.2)
        assert app.main.transcript.scroll_offset.y == before
        await pilot.press("ctrl+end")
        await wait_until(pilot, lambda: "more 49" in shown(app) and "new tokens" not in shown(app))


async def test_o52_foreign_text_is_literal_everywhere() -> None:
    engine = FakeEngine(manual=True)
    engine.spec.name = "[/model]"
    engine.drafters.append(FakeDrafter("[/d]", available=False, reason="[/why] \x1b[2J"))
    async with running(engine) as (app, pilot, engine):
        for nasty in (NASTY[0], "\n".join(NASTY), " ".join(NASTY)):
            ticket = await ask(pilot, engine, nasty)
            ticket.prefilled()
            ticket.say(*script(nasty))
            ticket.finish()
            await wait_until(pilot, lambda: not app.session.busy)
        ticket = await ask(pilot, engine, "[/foo]")
        ticket.fail(RuntimeError("[/error] \x1b]0;x\x07"))
        await wait_until(pilot, lambda: "[/error]" in shown(app))
        app.main.say("[/say] [bold")
        await pilot.pause()
        text = shown(app)
        assert "[/model]" in text
        assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) <= 0x9F for c in text)


async def test_failure_to_load_is_a_sentence_and_can_be_tried_again() -> None:
    engine = FakeEngine()
    attempts: list[int] = []

    def load(progress: object) -> FakeEngine:
        attempts.append(1)
        if len(attempts) < 3:
            raise WeightsMissing("There are no weights in /models/x; download the model again.")
        return engine

    app = ChatApp(Options(Config(), loader=load))
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_until(pilot, lambda: "There are no weights" in shown(app))
        assert "F5" in shown(app)
        await type_text(pilot, "do not lose me")
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(attempts) == 2)
        assert app.main.composer.text == "do not lose me"
        await pilot.press("enter")  # sending tries again too, and the message waits
        await wait_until(pilot, lambda: len(engine.tickets) == 1)
        assert app.session.chat.turns[0].user == "do not lose me"


async def test_failure_in_an_answer_is_a_sentence_and_can_be_tried_again() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "question")
        ticket.prefilled()
        ticket.say(*script("Partial"))
        ticket.fail(RuntimeError("The device ran out of memory; close other programs."))
        await wait_until(pilot, lambda: "ran out of memory" in shown(app))
        assert "Partial" in shown(app)
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(engine.tickets) == 2)
        assert len(app.session.chat.turns) == 1


async def test_a_refused_request_is_a_sentence() -> None:
    refusal = ContextOverflow("The prompt has 9000 tokens and the context window is 8192; start a new chat.")
    async with running(FakeEngine(refuse=refusal)) as (app, pilot, _):
        await type_text(pilot, "long")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "context window is 8192" in shown(app))
        assert not app.session.busy


async def test_progress_of_loading_is_shown() -> None:
    import threading

    gate = threading.Event()

    def load(progress: object) -> FakeEngine:
        assert callable(progress)
        progress(Progress("downloading [x]", 50_000_000, 93_000_000))
        gate.wait(5)
        return FakeEngine()

    app = ChatApp(Options(Config(), loader=load))
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_until(pilot, lambda: "50 of 93 MB" in shown(app))
        assert "Downloading [x]" in shown(app)
        gate.set()
        await wait_until(pilot, lambda: "is ready" in shown(app))


@pytest.mark.parametrize(("size", "side", "status", "footer"), [
    ((120, 36), True, False, True), ((80, 24), False, True, True), ((50, 24), False, True, False),
    ((120, 16), True, False, False),
])  # fmt: skip
async def test_layout_folds(size: tuple[int, int], side: bool, status: bool, footer: bool) -> None:
    from textual.widgets import Footer

    from tui.widgets.side_bar import SideBar
    from tui.widgets.status_row import StatusRow

    async with running(size=size) as (app, pilot, _):
        await pilot.pause()
        assert bool(app.query_one(SideBar).region.width) is side
        assert bool(app.query_one(StatusRow).region.width) is status
        assert bool(app.query_one(Footer).region.width) is footer
        await pilot.resize_terminal(120, 36)
        await pilot.pause()
        assert app.query_one(SideBar).region.width


async def test_panels_cycle() -> None:
    from tui.widgets.side_bar import SideBar

    async with running() as (app, pilot, _):
        assert "CALIBRATION" in shown(app)
        await pilot.press("f6")
        await pilot.pause()
        assert "CALIBRATION" not in shown(app)
        assert "ACCEPTANCE" in shown(app)
        await pilot.press("f6")
        await pilot.pause()
        assert not app.query_one(SideBar).region.width
        await pilot.press("f6")
        await pilot.pause()
        assert "CALIBRATION" in shown(app)


async def test_o51_streamed_code_survives_resize_theme_and_view_changes() -> None:
    async with running() as (app, pilot, engine):
        ticket = await ask(pilot, engine, "code")
        ticket.prefilled()
        ticket.say(*script("```python\nprint('body stays')\n"))
        await wait_until(pilot, lambda: "body stays" in shown(app))
        for change in (
            lambda: pilot.resize_terminal(90, 30),
            lambda: pilot.press("f4", "f4", "f4"),
            lambda: pilot.click(Transcript, offset=(4, 2)),
            lambda: pilot.resize_terminal(120, 36),
        ):
            await change()
            await pilot.pause()
            assert "body stays" in shown(app)
        for name in ("dspark-light", "nord", "ansi-dark", "dspark-contrast"):
            app.theme = name
            await pilot.pause()
            assert "body stays" in shown(app)
        app.main.transcript.open(app.session.chat)  # every row is made anew
        await wait_until(pilot, lambda: "body stays" in shown(app))
        ticket.say(*script("second = 2\n```\n", start=30))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await wait_until(pilot, lambda: "second = 2" in shown(app))
        await pilot.press("alt+up", "y")
        assert app.clipboard == "print('body stays')\nsecond = 2"


async def test_no_color_uses_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running() as (app, pilot, engine):
        assert app.theme == "ansi-dark"
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script("looked up text", source=Source.LOOKUP))
        await wait_until(pilot, lambda: "looked up" in shown(app))
        styles = {app.main.transcript.style("", code).underline for code in (1, 3)}
        assert styles == {None, True} or styles == {False, True}
        assert app.main.transcript.style("", 1).bold


async def test_o53_selection_copies_without_added_newlines() -> None:
    from textual.selection import SELECT_ALL

    async with running(size=(60, 30)) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        text = "漢字とカタカナの長い段落です。" * 6 + " and some words that follow it, wrapped at the width"
        ticket.say(*script(text))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.pause(0.1)
        selected = app.main.transcript.get_selection(SELECT_ALL)
        assert selected is not None
        assert selected[0] == f"You › go\n\n{text}"


def test_nothing_heavy_is_imported_before_the_first_frame() -> None:
    code = (
        "import sys; import tui.app, tui.options\n"
        "heavy = [m for m in ('mlx', 'mlx.core', 'transformers', 'huggingface_hub', 'pygments.lexers.python',"
        " 'prompt_toolkit', 'numpy') if m in sys.modules]\n"
        "print(heavy)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


async def test_idle_app_has_no_timers_running(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(FakeEngine()) as (app, pilot, engine):
        await ask(pilot, engine, "go")
        await wait_until(pilot, lambda: not app.session.busy)
        await wait_until(pilot, lambda: not app.main.conversation.events.awake)
        assert not [t for t in app._timers if "drain" in repr(t).lower()]
        app.main.composer.cursor_blink = False
        await settle(pilot)
        work: list[str] = []
        dispatch = MessagePump._dispatch_message

        async def watched(pump: MessagePump, message: Message) -> None:
            work.append(f"{pump}: {message}")
            await dispatch(pump, message)

        monkeypatch.setattr(MessagePump, "_dispatch_message", watched)
        app.screen.screen_layout_refresh_signal.subscribe(app, lambda _: work.append("a layout"))
        await asyncio.sleep(1.0)
        assert not work


@pytest.mark.parametrize(("cpu", "cores", "share"), [(True, 2, "SCARCE"), (True, 16, "SHARE"), (False, 2, "SHARE")])
def test_where_the_model_needs_the_cores_that_draw_there_are_fewer_drawings(
    cpu: bool, cores: int, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from tui.widgets.transcript import conversation_view as app

    monkeypatch.setattr("os.cpu_count", lambda: cores)
    backend = SimpleNamespace(is_cpu=lambda: cpu)
    assert app.share_of({"engine.backend": backend, "mlx.core": None}) == getattr(app, share)
    assert app.share_of({"engine.backend": backend}) == app.SHARE


async def test_no_row_is_cut() -> None:
    words = " ".join(f"word{i}" for i in range(200))
    async with running(size=(90, 40)) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "go")
        ticket.prefilled()
        ticket.say(*script(words))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.pause(0.1)
        view = app.main.transcript.answer(app.session.chat.turns[0])
        assert view is not None
        drawn = [app.main.transcript.render_line(y).text.strip() for y in range(3, 3 + view.said)]
        assert " ".join(drawn) == words


async def test_reasoning_is_folded_counted_and_kept_out_of_the_reply() -> None:
    engine = FakeEngine(manual=True)
    engine.format.thinks = True
    async with running(engine) as (app, pilot, engine):
        ticket = await ask(pilot, engine, "why")
        ticket.prefilled()
        ticket.say(*script("<think>\nSecret **steps** here.\n</think>\n\nThe reply is 42."))
        await wait_until(pilot, lambda: "The reply is 42" in shown(app))
        ticket.finish()
        await wait_until(pilot, lambda: not app.session.busy)
        await pilot.pause(0.1)
        assert "▸ thought" in shown(app)
        assert "Secret" not in shown(app)
        assert "<think>" not in shown(app)
        await pilot.press("ctrl+t")
        await pilot.pause()
        assert "Secret **steps** here." in shown(app)
        answer = app.session.chat.turns[0].answer
        assert answer.reply == "The reply is 42."
        assert sum(answer.tally.legend.values()) == 100
        second = await ask(pilot, engine, "and now")
        assert "Secret" not in "".join(chr(i) for i in second.request.prompt)
        assert app.library.store is not None
        app.library.store.settle()
        again = app.library.store.load(app.session.chat.id).turns[0].answer
        assert (again.reply, again.thought_ranges) == (answer.reply, answer.thought_ranges)

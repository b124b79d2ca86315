"""The plain mode: the same chat, commands and store, line by line."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config import Config
from engine.types import Source
from tests.tui.fakes import FakeEngine, loader
from tui.commands import completion
from tui.conversation.store import Store
from tui.options import Options
from tui.plain.chat import Plain, Writer, summary
from tui.provenance import DRAFT, LOOKUP, TARGET

ROOT = str(Path(__file__).resolve().parents[3])
CHILD = f"""
import sys
sys.path.insert(0, {ROOT!r})
import pytest

from engine.config import Config
from tests.tui.fakes import FakeEngine
from tui.plain.chat import run
from tui.commands import completion
from tui.options import Options
engine = FakeEngine(answers=["visible \\x1b]52;c;aGk=\\x07 words \\x1b[2J here"])
code = run(Options(Config(), loader=lambda progress: engine))
assert "textual" not in sys.modules, "the plain mode imports Textual"
sys.exit(code)
"""


def plain(engine: FakeEngine, style: str = "marks") -> tuple[Plain, io.StringIO]:
    out = io.StringIO()
    chat = Plain(Options(Config(), loader=loader(engine)), out, style)
    chat.load()
    return chat, out


async def test_an_answer_is_printed_with_marks_and_one_line_of_figures() -> None:
    chat, out = plain(FakeEngine(answers=["Some words that were drafted."]))
    await chat.handle("hello")
    text = out.getvalue()
    assert "‹" in text
    assert text.count("‹") == text.count("›")
    assert text.rstrip().splitlines()[-1].startswith("[accept 0.")
    bare = text.replace("‹", "").replace("›", "")
    assert "Some words that were drafted." in bare


async def test_commands_work() -> None:
    engine = FakeEngine()
    chat, out = plain(engine)
    for text in ("/drafter none", "/set temp 0.5", "/help", "/panels off", "/nonsense"):
        assert await chat.handle(text)
    assert engine.drafter == "none"
    assert chat.session.config.temperature == 0.5
    assert "/export [replace] file" in out.getvalue()
    assert "needs the full screen" in out.getvalue()
    assert "There is no command /nonsense" in out.getvalue()
    assert not await chat.handle("/quit")


async def test_chats_are_shared_with_the_app(tmp_path: Path) -> None:
    chat, out = plain(FakeEngine(answers=["An answer."]))
    chat.library.store = Store(tmp_path / "chats.db")
    await chat.handle("question")
    chat.library.store.settle()
    again, out = plain(FakeEngine(answers=["Another."]))
    again.library.store = chat.library.store
    await again.handle("/resume")
    assert "You: question" in out.getvalue()
    assert len(again.session.chat.turns) == 1
    chat.library.store.close()


async def test_failure_is_a_sentence() -> None:
    chat, out = plain(FakeEngine(refuse=RuntimeError("The prompt is too long; start a new chat.")))
    assert await chat.handle("hello")
    assert "too long" in out.getvalue()


def test_writer_styles() -> None:
    for style, want in (
        ("bare", "abc"),
        ("marks", "a‹b›«c»"),
        ("colour", "a\x1b[0;96mb\x1b[0;4;33mc\x1b[0m"),
    ):
        out = io.StringIO()
        writer = Writer(out, style)
        for text, code in (("a", TARGET), ("b", DRAFT), ("c", LOOKUP)):
            writer.write(text, code)
        writer.end()
        assert out.getvalue() == want


def test_through_pipes_there_are_no_escapes_and_no_textual(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input="hello\n/stats\nC:\\temp\\new\n",
        capture_output=True,
        text=True,
        env={"DSPARK_HOME": str(tmp_path), "PATH": "", "TERM": "xterm"},
        check=True,
    )
    assert "\x1b" not in done.stdout
    assert "visible  words  here" in done.stdout
    assert "tokens in" in done.stdout


def test_summary_says_only_what_is_known() -> None:
    from tui.conversation.chat import Status
    from tui.conversation.stats import Tally

    assert summary(Tally(), Status.DONE, None) == ""
    assert summary(Tally(), Status.STOPPED, 210.0) == "[stopped · first 0.21 s]"
    assert Source.DRAFT == "draft"


async def test_settings_presets_and_named_files_work_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("Call Anna.")
    engine = FakeEngine()
    chat, out = plain(engine)
    for text in (
        "/set temperature 0.5",
        "/preset save warm",
        "/preset",
        "/think off",
        "/import nothing.md",
        "/settings",
    ):
        assert await chat.handle(text)
    said = out.getvalue()
    for part in (
        "kept in config.toml",
        "Preset warm is kept",
        "› warm",
        "Thinking off",
        "There is no file",
        "full screen",
    ):
        assert part in said
    assert await chat.handle("who? @notes.txt")
    sent = "".join(chr(i) for i in engine.tickets[-1].request.prompt)
    assert "notes.txt:\n```txt\nCall Anna.\n```" in sent
    assert engine.tickets[-1].request.sampling.temperature == 0.5
    (tmp_path / "binary.txt").write_bytes(b"\0")
    assert await chat.handle("@binary.txt")
    assert "is no text" in out.getvalue()
    assert len(engine.tickets) == 1


def test_what_the_plain_prompt_completes() -> None:
    chat, _ = plain(FakeEngine())
    found = completion.candidates(chat, "/drafter l", completion.Project())
    assert [c.text for c in found] == ["/drafter lookup"]
    assert "/set top-p " in [c.text for c in completion.candidates(chat, "/set top", completion.Project())]

"""One answer without a screen: what goes to standard output, what to standard error, and the exit code."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_answers import FakeEngine, failing

from cli.main import main
from engine.errors import ContextOverflow, MemoryShort
from engine.types import Source


class Stdin(io.StringIO):
    def __init__(self, text: str = "", tty: bool = True) -> None:
        super().__init__(text)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*argv: str, stdin: str | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", Stdin(stdin or "", tty=stdin is None))
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_answer_and_nothing_else_goes_to_stdout(engine: FakeEngine, run: Any):
    assert run("hi") == (0, "Hello there!\n", "")
    assert engine.messages == [{"role": "user", "content": "hi"}]
    assert engine.closed


def test_standard_input_comes_before_the_words(engine: FakeEngine, run: Any):
    run("explain", "this", stdin="a = 1\n")
    assert engine.messages[-1]["content"] == "a = 1\n\nexplain this"


def test_standard_input_alone_is_a_prompt(engine: FakeEngine, run: Any):
    assert run(stdin="hello")[0] == 0
    assert engine.messages[-1]["content"] == "hello"


def test_nothing_to_answer_is_a_usage_error(engine: FakeEngine, run: Any):
    code, out, err = run(stdin="")
    assert (code, out) == (2, "")
    assert "There is no prompt" in err


def test_system_prompt_comes_first(engine: FakeEngine, run: Any):
    run("--system", "be brief", "hi")
    assert engine.messages[0] == {"role": "system", "content": "be brief"}


def test_json_is_one_object_with_provenance(engine: FakeEngine, run: Any):
    code, out, _ = run("--json", "hi")
    answer = json.loads(out)
    assert code == 0
    assert answer["text"] == "Hello there!"
    assert answer["provenance"] == [["target", 5], ["lookup", 6], ["draft", 1]]
    assert sum(length for _, length in answer["provenance"]) == len(answer["text"])
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["completion"] == 3
    assert answer["drafter"] == "lookup+dspark", "what was in charge, not the part of it that proposed last"


def test_jsonl_has_every_event_of_the_engine(engine: FakeEngine, run: Any):
    lines = [json.loads(line) for line in run("--jsonl", "hi")[1].splitlines()]
    assert [line["event"] for line in lines] == ["prefilled", *["round", "tokens"] * 3, "finished"]
    assert lines[3]["source"] == "lookup"


def test_statistics_go_to_stderr_and_only_when_asked(engine: FakeEngine, run: Any):
    _, out, err = run("-v", "hi")
    assert out == "Hello there!\n"
    assert "[lookup+dspark ·" in err and "accept 0.50" in err and "tok/s" in err


def test_no_stream_prints_once(engine: FakeEngine, run: Any, monkeypatch: pytest.MonkeyPatch):
    assert run("--no-stream", "hi")[1] == "Hello there!\n"


THINKING = [
    (Source.TARGET, "<think>"),
    (Source.DRAFT, "hm, "),
    (Source.TARGET, "yes</think>\n\nNo"),
    (Source.LOOKUP, "pe"),
]


def test_reasoning_is_not_part_of_the_answer(engine: FakeEngine, run: Any):
    engine.script = THINKING
    assert run("hi")[1] == "Nope\n"
    answer = json.loads(run("--json", "hi")[1])
    assert (answer["text"], answer["reasoning"]) == ("Nope", "hm, yes")
    assert answer["provenance"] == [["target", 2], ["lookup", 2]]


def test_reasoning_without_an_answer_is_said(engine: FakeEngine, run: Any):
    engine.script = THINKING[:2]
    code, out, err = run("hi")
    assert (code, out) == (0, "")
    assert "--max-tokens" in err


def test_reasoning_is_dimmed_on_a_terminal(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch):
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    engine.script = THINKING
    screen = Tty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdin", Stdin())
    monkeypatch.setattr("sys.stdout", screen)
    assert main(["-q", "hi"]) == 0
    assert screen.getvalue() == "\x1b[2mhm, yes\n\n\x1b[0mNo\x1b[36mpe\x1b[0m\n"


def test_colours_only_when_forced_off_a_terminal(engine: FakeEngine, run: Any):
    assert "\x1b" not in run("hi")[1]
    coloured = run("--color", "always", "hi")[1]
    assert coloured == "Hello\x1b[36m there\x1b[0m\x1b[32m!\x1b[0m\n"
    assert "\x1b" not in run("--color", "never", "hi")[1]


def test_model_text_cannot_drive_the_terminal_even_split_over_tokens(engine: FakeEngine, run: Any):
    engine.script = [
        (Source.TARGET, t) for t in ("a\x1b", "]0;title\x07b", "\x1b[2", "Jc\x9b31md\x00", "\x1bPq\x1b", "\\e\r\n")
    ]
    assert run("hi")[1] == "abcde\n"


def test_jsonl_escapes_control_characters(engine: FakeEngine, run: Any):
    engine.script = [(Source.TARGET, "\x1b[2J")]
    assert "\x1b" not in run("--jsonl", "hi")[1]


def test_an_engine_failure_is_a_sentence_and_keeps_what_was_said(engine: FakeEngine, run: Any):
    engine.events = lambda: failing(MemoryShort("Out of memory; choose a smaller model."))
    code, _, err = run("hi")
    assert (code, err) == (1, "dspark-chat: Out of memory; choose a smaller model.\n")
    assert engine.closed


def test_a_prompt_longer_than_the_context_is_a_usage_error(engine: FakeEngine, run: Any):
    engine.events = lambda: failing(ContextOverflow("The prompt has 200 tokens and the window 100.", 200, 100))
    assert run("hi")[0] == 2


def test_an_unforeseen_error_is_a_sentence_too(engine: FakeEngine, run: Any):
    engine.events = lambda: failing(ValueError("bad \x1b[31mthing"))
    code, _, err = run("hi")
    assert code == 1
    assert "ValueError: bad thing" in err and "\x1b" not in err and "Traceback" not in err


@pytest.fixture
def interruptible():
    """A suite that a shell started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_keeps_the_partial_answer_and_exits_130(engine: FakeEngine, run: Any):
    def interrupt(number: int) -> None:
        if number == 3:
            signal.raise_signal(signal.SIGINT)

    engine.at_event = interrupt
    code, out, err = run("hi")
    assert code == 130
    assert out.startswith("Hello")
    assert engine.ticket is not None and engine.ticket.cancelled
    assert "Traceback" not in err


def test_a_closed_pipe_is_not_an_error(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch):
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return sink.fileno()

    with open("/dev/null", "w") as sink:
        monkeypatch.setattr("sys.stdin", Stdin())
        monkeypatch.setattr("sys.stdout", Closed())
        assert main(["hi"]) == 0
    assert engine.ticket is not None and engine.ticket.cancelled


def test_a_picture_for_a_text_model(engine: FakeEngine, run: Any, tmp_path: Path):
    from PIL import Image

    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    code, _, err = run("-i", str(tmp_path / "x.png"), "what is this?")
    assert code == 2
    assert "fake" in err


def test_o63_a_drafter_that_can_never_draft_is_said(engine: FakeEngine, run: Any):
    assert "will not draft" in run("--drafter", "dspark", "--cap", "0", "hi")[2]
    assert run("--drafter", "dspark", "--cap", "0", "-q", "hi")[2] == ""
    assert run("--cap", "0", "hi")[2] == ""

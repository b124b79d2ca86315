"""The plain mode: a line-by-line chat on the main screen, for dumb terminals, screen readers and those who like it.

Scrollback, selection and copying are the terminal's own. Shares commands, chats, history and figures with the app, and
imports no Textual.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from engine import paths
from engine.chat.terminal_safe import clean
from engine.errors import DsparkError
from engine.types import Event, Tokens
from themes import Theme
from tui.commands import completion, registry, reports
from tui.conversation import mentions
from tui.conversation.chat import Chat, Status, Turn
from tui.conversation.images import look
from tui.conversation.input_history import History
from tui.conversation.library import ChatLibrary
from tui.conversation.session import ChatSession
from tui.conversation.stats import Tally
from tui.engine_api import Progress, default_loader
from tui.options import Options
from tui.plain import models
from tui.plain.typeahead import kept
from tui.provenance import DRAFT, LOOKUP, TARGET

log = logging.getLogger("dspark.tui")

SGR = {TARGET: "0", DRAFT: "96", LOOKUP: "4;33"}
MARKS = {TARGET: ("", ""), DRAFT: ("‹", "›"), LOOKUP: ("«", "»")}


class Writer:
    """Runs of text with their source: in colour, between marks, or bare."""

    def __init__(self, out: TextIO, style: str) -> None:
        """style: `colour`, `marks` or `bare`."""
        self._out = out
        self._style = style
        self._code = TARGET

    def write(self, text: str, code: int) -> None:
        self._switch(code)
        self._out.write(text)
        self._out.flush()

    def end(self) -> None:
        self._switch(TARGET)

    def _switch(self, code: int) -> None:
        if code == self._code:
            return
        if self._style == "marks":
            self._out.write(MARKS[self._code][1] + MARKS[code][0])
        elif self._style == "colour":
            self._out.write(f"\x1b[0;{SGR[code]}m" if code != TARGET else "\x1b[0m")
        self._code = code


def summary(tally: Tally, status: Status, first_ms: float | None) -> str:
    """One line of fixed form: `[accept 0.74 · 3.1/round · 88 tok/s · first 0.21 s]`."""
    parts = [] if status is Status.DONE else [str(status)]
    if tally.acceptance is not None:
        parts.append(f"accept {tally.acceptance:.2f}")
    if tally.per_round is not None:
        parts.append(f"{tally.per_round:.1f}/round")
    if tally.rate is not None:
        parts.append(f"{tally.rate:.0f} tok/s")
    if first_ms is not None:
        parts.append(f"first {first_ms / 1000:.2f} s")
    return f"[{' · '.join(parts)}]" if parts else ""


class Plain:
    """The host of the commands, and the loop."""

    def __init__(self, options: Options, out: TextIO, style: str) -> None:
        self.options = options
        self.session = ChatSession(options.config)
        self.session.chat.system = options.config.system
        self.library = ChatLibrary(self.session, self.say)
        self._out = out
        self._style = style
        self._left = False

    # Host of the commands ---------------------------------------------------------------------------------------------

    full = None
    recent: Sequence[str] = ()

    @property
    def look(self) -> Theme:
        return registry.default_look()

    def copy_text(self, text: str) -> None:
        self.say(text)

    def leave(self) -> None:
        self._left = True

    def attach(self, path: Path) -> str:
        return self.session.album.attach(path, look(path, self.session.engine))

    async def edit_text(self, text: str) -> str | None:
        from tui.terminal.external_editor import edit

        return edit(text)

    async def show_chat(self, chat: Chat) -> None:
        self.library.show(chat)
        for turn in chat.turns:
            self.say(f"You: {turn.user}\n")
            self._replay(turn)
        if not chat.turns:
            self.say("A new chat.")

    async def answer_again(self, text: str | None = None) -> str | None:
        if self.session.engine is None:
            self.load()
        gone = self.session.rewind()
        if isinstance(gone, str):
            return gone
        self.ask(text or gone[0].user)
        return None

    def help(self) -> str:
        return "\n".join(f"{usage:<34} {text}" for usage, text in registry.table(registry.available(self)))

    async def chats(self) -> str:
        rows = self.library.store.list(20) if self.library.store is not None else []
        return "\n".join(f"{row.id[:8]}  {row.name}" for row in rows) or "There is no chat yet."

    async def model(self, words: str) -> str:
        return models.command(self.session, words, self.say)

    def doctor(self) -> str:
        return reports.doctor_text(self.session.config, self.session.engine)

    def log(self) -> str:
        return reports.log_text()

    # The loop ---------------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self._out.write(clean(text) + "\n")
        self._out.flush()

    def load(self) -> None:
        """Load the model.

        Raises:
            DsparkError: with one sentence.
        """
        loader = self.options.loader or default_loader(self.session.config)
        last = ""

        def report(progress: Progress) -> None:
            nonlocal last
            if progress.text != last:
                last = progress.text
                self.say(f"{progress.text} …")

        with kept(sys.stdin):
            self.session.engine = loader(report)
        self.say(f"{self.session.engine.spec.name} is ready; drafter {self.session.drafter}. /help lists commands.")

    def ask(self, text: str) -> Turn:
        """Send, print the answer as it comes, print its figures. Ctrl+C stops it and keeps what is there."""
        if self.session.engine is None:
            self.load()
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        turn = self.session.begin(text)
        self.library.save(turn)
        self.session.submit(turn, events.put)
        for image in turn.images:
            self.say(f"[image: {image}]")
        writer = Writer(self._out, self._style)
        self._out.write("Model: " if self._style != "colour" else "")
        with kept(sys.stdin):
            while self.session.busy:
                try:
                    self._take(events.get(timeout=0.2), writer, turn)
                except queue.Empty:
                    continue
                except KeyboardInterrupt:
                    self.session.cancel()
        writer.end()
        answer = turn.answer
        self._out.write("\n")
        if answer.error:
            self.say(f"Error: {answer.error} Type /regen to retry.")
        line = summary(answer.tally, answer.status, answer.first_ms)
        if line:
            self.say(line)
        self.library.save(turn)
        return turn

    def _take(self, event: Event, writer: Writer, turn: Turn) -> None:
        self.session.apply(event, writer.write)
        if isinstance(event, Tokens):
            self.library.progressed(turn)

    def _replay(self, turn: Turn) -> None:
        writer = Writer(self._out, self._style)
        start = 0
        for span in turn.answer.spans:
            writer.write(turn.answer.text[start : span.end], span.code)
            start = span.end
        writer.write(turn.answer.text[start:], TARGET)
        writer.end()
        self._out.write("\n\n")

    async def handle(self, text: str) -> bool:
        """One input; whether to go on."""
        command = registry.parse(text)
        if command is not None:
            result = await registry.run(self, *command)
            if result:
                self.say(result)
        elif text.strip():
            try:
                text = mentions.expand(text)
                self.ask(text.removeprefix("/") if text.startswith("//") else text)
            except DsparkError as error:  # a file that cannot be sent, or a model that does not come back
                self.say(str(error))
        return not self._left


def run(options: Options) -> int:
    """Chat until end of input, /quit, or Ctrl+C twice."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    plain = Plain(options, sys.stdout, "colour" if colour else "marks" if options.marks else "bare")
    try:
        plain.load()
    except DsparkError as error:
        plain.say(str(error))
        return error.exit_code
    plain.library.open(paths.data() / "chats.db")
    try:
        return _loop(plain)
    finally:
        plain.library.close()
        if plain.session.engine is not None:
            plain.session.engine.close()


def _loop(plain: Plain) -> int:
    if plain.library.store is not None and (plain.options.continue_last or plain.options.resume is not None):
        asyncio.run(plain.handle(f"/resume {plain.options.resume or ''}"))
    interrupted = False
    for text in _inputs(plain, paths.state() / "history.jsonl"):
        if text is None:
            if interrupted:
                return 130
            interrupted = True
            plain.say("Ctrl+C again leaves.")
            continue
        interrupted = False
        if not asyncio.run(plain.handle(text)):
            break
    return 0


def _inputs(plain: Plain, history: Path) -> Iterator[str | None]:
    """What the user writes; None for Ctrl+C on the prompt."""
    prompt = _prompt(plain, History(history)) if sys.stdin.isatty() else None
    while True:
        try:
            if prompt is not None:
                yield prompt()
            else:
                line = sys.stdin.readline()
                if not line:
                    return
                yield line.rstrip("\n")
        except KeyboardInterrupt:
            yield None
        except EOFError:
            return


def _prompt(plain: Plain, history: History) -> Callable[[], str]:
    """A prompt_toolkit line with history, several lines by Ctrl+J or Alt+Enter, and completion as in the app."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings

    project = completion.Project()

    class Words(Completer):
        """Commands, their words, and files after an @."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            before = document.current_line_before_cursor
            if completion.wants_files(before) and project.stale:
                project.look()
            for found in completion.candidates(plain, before, project):
                yield Completion(found.text, found.start - len(before), found.label, found.note)

    past = InMemoryHistory(history.items)
    keys = KeyBindings()

    @keys.add("c-j")
    @keys.add("escape", "enter")
    def _newline(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=past, key_bindings=keys, completer=Words(), complete_while_typing=False, enable_open_in_editor=True
    )

    def ask() -> str:
        text = session.prompt("You: ")
        history.add(text)
        return text

    return ask

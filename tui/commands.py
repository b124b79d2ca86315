"""The slash commands, once: the app, the plain mode, completion and help are made from this table.

A handler gets the host (the app or the plain mode) and the words after the command, and returns a sentence or nothing.
A leading space or a second slash sends a slash as text.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import themes
from engine import paths
from engine.chat.images import picture_path
from engine.chat.terminal_safe import one_line
from engine.errors import DsparkError, did_you_mean
from themes import Theme
from tui import choices, clipboard, compare, export, importer, setting_commands
from tui.chat import Chat
from tui.controller import Controller
from tui.stats import counted
from tui.store import Store

Result = str | None


class Host(Protocol):
    """What a front end offers to commands."""

    controller: Controller
    store: Store | None

    @property
    def look(self) -> Theme: ...
    def copy_text(self, text: str) -> None: ...
    def leave(self) -> None: ...
    def attach(self, path: Path) -> Result:
        """Send a picture with the next message; or say why not."""
        ...

    async def new_chat(self) -> None: ...
    async def open_chat(self, id: str) -> None: ...
    async def take_chat(self, chat: Chat) -> None:
        """Keep a chat that came from elsewhere, and go on with it."""
        ...

    async def answer_again(self, text: str | None = None) -> Result:
        """Answer the last message anew, or another one in its place; the old answer stays as a branch."""
        ...

    async def edit_text(self, text: str) -> str | None:
        """`text` after the user's editor had it; None when there was none."""
        ...

    async def screen_command(self, name: str, words: str) -> Result:
        """A command that only a full screen can carry out."""
        ...


Handler = Callable[[Host, str], "Result | Awaitable[Result]"]
Choices = Callable[[Host, str], Sequence[tuple[str, str]]]
"""(host, words so far) → (what the words could become, a note)."""


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    words: str
    help: str
    handler: Handler | None
    """None: `Host.screen_command` does it."""
    aliases: tuple[str, ...] = ()
    words_of: Choices | None = None
    """What the words could become, for completion."""


def parse(text: str) -> tuple[str, str] | None:
    """(name, words) when `text` is a command."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text.strip():
        return None
    name, _, words = text[1:].strip().partition(" ")
    return (name, words.strip()) if name and "/" not in name else None


def find(name: str) -> Command | None:
    return next((c for c in COMMANDS if name == c.name or name in c.aliases), None)


def complete(text: str) -> list[Command]:
    """Commands that a beginning could become."""
    if not text.startswith("/") or " " in text or text.startswith("//"):
        return []
    start = text[1:]
    return [c for c in COMMANDS if c.name.startswith(start) or any(a.startswith(start) for a in c.aliases)]


async def run(host: Host, text: str) -> Result:
    """Carry out `text`, which `parse` accepts; the sentence to show. Faults of the user come back as sentences."""
    parsed = parse(text)
    assert parsed is not None
    name, words = parsed
    command = find(name)
    if command is None:
        hint = did_you_mean(name, [c.name for c in COMMANDS], "/") or " /help lists them all."
        return f"There is no command /{name}.{hint} Two slashes send it as text."
    try:
        if command.handler is None:
            return await host.screen_command(command.name, words)
        result = command.handler(host, words)
        return await result if inspect.isawaitable(result) else result
    except DsparkError as error:
        return str(error)


# Handlers -------------------------------------------------------------------------------------------------------------


def _drafter(host: Host, words: str) -> Result:
    controller = host.controller
    if not words:
        rows: list[str] = []
        for drafter in controller.drafters:
            note = drafter.detail if drafter.available else drafter.reason or "not available"
            mark = "›" if drafter.name == controller.drafter else " "
            rows.append(f"{mark} {drafter.name}" + (f": {note}" if note else ""))
        return "\n".join(rows) or "The model is not loaded yet."
    return controller.use(words) or f"Drafter {words}, from the next round on."


async def _new(host: Host, words: str) -> Result:
    await host.new_chat()
    return None


async def _resume(host: Host, words: str) -> Result:
    if host.store is None:
        return "Chats are not saved in this session."
    found = host.store.find(words)
    if found is None:
        return f"There is no chat whose id begins with {words}." if words else "There is no chat yet."
    await host.open_chat(found)
    return None


def _rename(host: Host, words: str) -> Result:
    if not words:
        return "/rename TITLE gives this chat a title."
    host.controller.chat.title = words
    if host.store is not None:
        host.store.rename(host.controller.chat.id, words)
    return f"This chat is called “{words}”."


async def _regen(host: Host, words: str) -> Result:
    return await host.answer_again()


async def _edit(host: Host, words: str) -> Result:
    return await host.answer_again(words) if words else "/edit TEXT puts another message in the place of the last one."


def _undo(host: Host, words: str) -> Result:
    if host.store is None:
        return "Chats are not saved in this session."
    deleted = getattr(host, "deleted_chat", "")
    if not deleted:
        return "Nothing was deleted."
    host.store.restore(deleted)
    return "The chat is back in the list."


def _copy(host: Host, words: str) -> Result:
    chat = host.controller.chat
    what, _, number = words.partition(" ")
    if what == "chat":
        text = export.markdown(chat)
    else:
        answer = next((t.answer.reply for t in reversed(chat.turns) if t.answer.text), "")
        if what == "code":
            blocks = code_blocks(answer)
            n = int(number) if number.isdigit() else len(blocks)
            if not 1 <= n <= len(blocks):
                return f"The last answer has {len(blocks)} code blocks."
            text = blocks[n - 1]
        else:
            text = answer
    if not text:
        return "There is nothing to copy yet."
    host.copy_text(text)
    return f"Copied {len(text)} characters."


def code_blocks(text: str) -> list[str]:
    """Contents of the fenced blocks of an answer."""
    from tui.markdown.render import parser

    return [token.content for token in parser().parse(text) if token.type == "fence"]


def _export(host: Host, words: str) -> Result:
    if not words:
        return f"/export FILE, ending in {', '.join(export.FORMATS)}."
    path = Path(words.removeprefix("replace ").strip()).expanduser()
    export.write(host.controller.chat, path, host.look, replace=words.startswith("replace "))
    return f"Written to {path}."


async def _import(host: Host, words: str) -> Result:
    if not words:
        return "/import FILE reads a chat from Markdown, JSON or text."
    chat = importer.read(Path(words.strip("'\"")).expanduser())
    await host.take_chat(chat)
    return f"Read “{one_line(chat.name)}”, {counted(len(chat.turns), 'turn')}."


def _stats(host: Host, words: str) -> Result:
    controller = host.controller
    tally = controller.session if words == "session" else controller.last
    if not tally.tokens:
        return "There is no answer yet."
    shares = ", ".join(f"{source} {share}%" for source, share in tally.legend.items())
    rate = f"{tally.rate:.1f} tok/s" if tally.rate is not None else "no rate yet"
    accept = f"acceptance {tally.acceptance:.2f}" if tally.acceptance is not None else "nothing drafted"
    return f"{tally.tokens} tokens in {tally.rounds} rounds: {shares}; {accept}; {rate}."


def _compare(host: Host, words: str) -> Result:
    calibration = getattr(host.controller.engine, "calibration", None)
    answers = [turn.answer for turn in host.controller.chat.turns]
    return compare.table(answers, float(getattr(calibration, "plain", 0.0) or 0.0))


async def _image(host: Host, words: str) -> Result:
    match words:
        case "":
            return "/image FILE sends a picture with the next message; @FILE in the message does the same."
        case "show":
            return await host.screen_command("image", words)
        case "paste":
            path = await asyncio.to_thread(clipboard.keep_picture, paths.data() / "pasted")
        case "clear":
            host.controller.album.waiting.clear()
            return "No picture waits any more."
        case _:
            path = picture_path(words).absolute()
    return host.attach(path)


def _ctx(host: Host, words: str) -> Result:
    engine = host.controller.engine
    return (
        f"{host.controller.used} of {engine.spec.context} tokens." if engine is not None else "No model is loaded yet."
    )


def _quit(host: Host, words: str) -> Result:
    host.leave()
    return None


COMMANDS: tuple[Command, ...] = (
    Command("help", "", "keys and commands", None, ("keys", "?")),
    Command(
        "model",
        "[name|unload|stop]",
        "list the models, or load another; the chat stays",
        None,
        ("models",),
        choices.models,
    ),
    Command("drafter", "[name]", "list the drafters, or switch", _drafter, ("drafters",), choices.drafters),
    Command(
        "set",
        "[session] [name value]",
        "temperature, top-p, seed, max-tokens…, kept in the settings file or not",
        setting_commands.set_,
        words_of=setting_commands.set_choices,
    ),
    Command("settings", "", "all settings, to look at and to change", None),
    Command(
        "preset",
        "[name|save|delete|none]",
        "sampling, system prompt, thinking and drafter under a name",
        setting_commands.preset,
        ("presets",),
        setting_commands.preset_choices,
    ),
    Command(
        "system",
        "[text|edit|none]",
        "the system prompt of this chat",
        setting_commands.system,
        words_of=setting_commands.system_choices,
    ),
    Command(
        "think",
        "[on|off|auto|effort]",
        "whether and how long the model thinks first",
        setting_commands.think,
        ("thinking",),
        setting_commands.think_choices,
    ),
    Command("new", "", "a new chat", _new, ("clear",)),
    Command("sessions", "", "find, open, rename and delete chats", None, ("chats",)),
    Command("resume", "[id]", "go on with a chat, the last one without an id", _resume, (), choices.chats),
    Command("rename", "title", "give this chat a title", _rename),
    Command("regen", "", "answer the last message again; the old answer stays as a branch", _regen, ("regenerate",)),
    Command("edit", "text", "another message in the place of the last one; the old one stays as a branch", _edit),
    Command(
        "branch",
        "[next|previous]",
        "step through the branches at the last message",
        None,
        (),
        choices.fixed("next", "previous"),
    ),
    Command("retry", "", "try again after a failure", None),
    Command("undo", "", "bring back the chat deleted last", _undo),
    Command(
        "copy",
        "[answer|code n|chat]",
        "copy the last answer, one of its code blocks, or the chat",
        _copy,
        (),
        choices.fixed("answer", "code", "chat"),
    ),
    Command(
        "image",
        "file|paste|show|clear",
        "send a picture with the next message; @file in the message does the same",
        _image,
        (),
        choices.pictures,
    ),
    Command("export", "[replace] file", "write the chat as .md, .json, .html or .svg", _export, (), choices.written),
    Command(
        "import", "file", "read a chat from a Markdown, JSON or text file, or from an export", _import, (), choices.read
    ),
    Command("inspect", "", "token by token: round, place in the block, source, what was turned down", None),
    Command(
        "view", "[source|markdown|trace]", "colours", None, ("colours",), choices.fixed("source", "markdown", "trace")
    ),
    Command("panels", "[all|compact|off]", "side panels", None, (), choices.fixed("all", "compact", "off")),
    Command("ribbon", "[letters|bars]", "the row of rounds", None, (), choices.fixed("letters", "bars")),
    Command("theme", "[name]", "list the themes, or switch", None, (), choices.themes),
    Command(
        "race",
        "[a,b,…] [tokens]",
        "the same prompt through 2 to 4 drafters, side by side, with a verdict",
        None,
        (),
        choices.arms,
    ),
    Command("compare", "", "the drafters of this conversation in one table", _compare),
    Command(
        "chart",
        "[panel]",
        "a panel over the whole screen, as a chart",
        None,
        ("charts",),
        choices.fixed("acceptance", "rate", "positions", "drafters", "prefix", "calibration"),
    ),
    Command(
        "calibrate",
        "[stop]",
        "measure this machine again for the model and its drafters",
        None,
        (),
        choices.fixed("stop"),
    ),
    Command("doctor", "", "describe this machine and this installation", None),
    Command("log", "", "the end of the program's log", None),
    Command("stats", "[turn|session]", "figures in words", _stats, (), choices.fixed("turn", "session")),
    Command("ctx", "", "how full the context is", _ctx),
    Command("quit", "", "leave; the chat is saved", _quit, ("exit", "q")),
)


def default_look() -> Theme:
    """For hosts without themes of their own."""
    return themes.load().themes[themes.DEFAULT]


def table() -> list[tuple[str, str]]:
    """(usage, help) of each command, for help."""
    return [(f"/{c.name} {c.words}".rstrip(), c.help) for c in COMMANDS]

"""The table of slash commands, once: the app, its palette, the plain mode, completion and help are made from it.

A leading space or a second slash sends a slash as text.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import themes
from engine.errors import DsparkError, did_you_mean
from themes import Theme
from tui.commands import arguments, settings_commands
from tui.commands import chat_commands as chat
from tui.commands.host import Choice, Host, Result, ScreenHost

Handler = Callable[[Host, str], "Result | Awaitable[Result]"]
ScreenHandler = Callable[[ScreenHost, str], "Result | Awaitable[Result]"]
Choices = Callable[[Host, str], Sequence[Choice]]
"""(host, words so far) → what the words could become."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: it has a handler, or one that needs a screen."""

    name: str
    words: str
    help: str
    handler: Handler | None = None
    aliases: tuple[str, ...] = ()
    words_of: Choices | None = None
    """What the words could become, for completion."""
    on_screen: ScreenHandler | None = None

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.words}".rstrip()


def parse(text: str) -> tuple[str, str] | None:
    """(name, words) when `text` is a command."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text.strip():
        return None
    name, _, words = text[1:].strip().partition(" ")
    return (name, words.strip()) if name and "/" not in name else None


def find(name: str) -> Command | None:
    return next((c for c in COMMANDS if name == c.name or name in c.aliases), None)


def available(host: Host) -> list[Command]:
    """Those that this front end can carry out."""
    return [c for c in COMMANDS if c.handler is not None or host.full is not None]


def complete(host: Host, text: str) -> list[Command]:
    """Commands that a beginning could become."""
    if not text.startswith("/") or " " in text or text.startswith("//"):
        return []
    start = text[1:]
    return [c for c in available(host) if c.name.startswith(start) or any(a.startswith(start) for a in c.aliases)]


async def run(host: Host, name: str, words: str = "") -> Result:
    """Carry out a command; the sentence to show. Faults of the user come back as sentences."""
    command = find(name)
    if command is None:
        hint = did_you_mean(name, [c.name for c in COMMANDS], "/") or " /help lists them all."
        return f"There is no command /{name}.{hint} Two slashes send it as text."
    try:
        if command.handler is not None:
            result = command.handler(host, words)
        elif host.full is not None and command.on_screen is not None:
            result = command.on_screen(host.full, words)
        else:
            return f"/{command.name} needs the full screen; start without --plain for it."
        return await result if inspect.isawaitable(result) else result
    except DsparkError as error:
        return str(error)


COMMANDS: tuple[Command, ...] = (
    Command("help", "", "keys and commands", lambda host, words: host.help(), ("keys", "?")),
    Command(
        "model",
        "[name|unload|stop]",
        "list the models, or load another; the chat stays",
        lambda host, words: host.model(words),
        ("models",),
        arguments.models,
    ),
    Command("drafter", "[name]", "list the drafters, or switch", chat.drafter, ("drafters",), arguments.drafters),
    Command(
        "set",
        "[session] [name value]",
        "temperature, top-p, seed, max-tokens…, kept in the settings file or not",
        settings_commands.set_,
        words_of=settings_commands.set_choices,
    ),
    Command(
        "settings", "", "all settings, to look at and to change", None, on_screen=lambda host, words: host.settings()
    ),
    Command(
        "preset",
        "[name|save|delete|none]",
        "sampling, system prompt, thinking and drafter under a name",
        settings_commands.preset,
        ("presets",),
        settings_commands.preset_choices,
    ),
    Command(
        "system",
        "[text|edit|none]",
        "the system prompt of this chat",
        settings_commands.system,
        words_of=settings_commands.system_choices,
    ),
    Command(
        "think",
        "[on|off|auto|effort]",
        "whether and how long the model thinks first",
        settings_commands.think,
        ("thinking",),
        settings_commands.think_choices,
    ),
    Command("new", "", "a new chat", chat.new, ("clear",)),
    Command("sessions", "", "find, open, rename and delete chats", lambda host, words: host.chats(), ("chats",)),
    Command("resume", "[id]", "go on with a chat, the last one without an id", chat.resume, (), arguments.chats),
    Command("rename", "title", "give this chat a title", chat.rename),
    Command(
        "regen", "", "answer the last message again; the old answer stays as a branch", chat.regenerate, ("regenerate",)
    ),
    Command("edit", "text", "another message in the place of the last one; the old one stays as a branch", chat.edit),
    Command(
        "branch",
        "[next|previous]",
        "step through the branches at the last message",
        None,
        (),
        arguments.fixed("next", "previous"),
        on_screen=lambda host, words: host.branch(words),
    ),
    Command("retry", "", "try again after a failure", None, on_screen=lambda host, words: host.retry()),
    Command("undo", "", "bring back the chat deleted last", chat.undo),
    Command(
        "copy",
        "[answer|code n|chat]",
        "copy the last answer, one of its code blocks, or the chat",
        chat.copy,
        (),
        arguments.fixed("answer", "code", "chat"),
    ),
    Command(
        "image",
        "file|paste|show|clear",
        "send a picture with the next message; @file in the message does the same",
        chat.image,
        (),
        arguments.pictures,
    ),
    Command(
        "export", "[replace] file", "write the chat as .md, .json, .html or .svg", chat.write, (), arguments.written
    ),
    Command(
        "import",
        "file",
        "read a chat from a Markdown, JSON or text file, or from an export",
        chat.read,
        (),
        arguments.read,
    ),
    Command(
        "inspect",
        "",
        "token by token: round, place in the block, source, what was turned down",
        None,
        on_screen=lambda host, words: host.inspect(),
    ),
    Command(
        "view",
        "[source|markdown|trace]",
        "colours",
        None,
        ("colours",),
        arguments.fixed("source", "markdown", "trace"),
        on_screen=lambda host, words: host.set_view(words),
    ),
    Command(
        "panels",
        "[all|compact|off]",
        "side panels",
        None,
        (),
        arguments.fixed("all", "compact", "off"),
        on_screen=lambda host, words: host.set_panels(words),
    ),
    Command(
        "ribbon",
        "[letters|bars]",
        "the row of rounds",
        None,
        (),
        arguments.fixed("letters", "bars"),
        on_screen=lambda host, words: host.set_ribbon(words),
    ),
    Command(
        "theme",
        "[name]",
        "list the themes, or switch",
        None,
        (),
        arguments.themes,
        on_screen=lambda host, words: host.set_theme(words),
    ),
    Command(
        "race",
        "[a,b,…] [tokens]",
        "the same prompt through 2 to 4 drafters, side by side, with a verdict",
        None,
        (),
        arguments.arms,
        on_screen=lambda host, words: host.race(words),
    ),
    Command("compare", "", "the drafters of this conversation in one table", chat.comparison),
    Command(
        "chart",
        "[panel]",
        "a panel over the whole screen, as a chart",
        None,
        ("charts",),
        arguments.panels,
        on_screen=lambda host, words: host.chart(words),
    ),
    Command(
        "calibrate",
        "[stop]",
        "measure this machine again for the model and its drafters",
        None,
        (),
        arguments.fixed("stop"),
        on_screen=lambda host, words: host.calibrate(words),
    ),
    Command("doctor", "", "describe this machine and this installation", lambda host, words: host.doctor()),
    Command("log", "", "the end of the program's log", lambda host, words: host.log()),
    Command("stats", "[turn|session]", "figures in words", chat.stats, (), arguments.fixed("turn", "session")),
    Command("ctx", "", "how full the context is", chat.context),
    Command("quit", "", "leave; the chat is saved", chat.leave, ("exit", "q")),
)


def default_look() -> Theme:
    """For hosts without themes of their own."""
    return themes.load().themes[themes.DEFAULT]


def table(commands: Sequence[Command] = COMMANDS) -> list[tuple[str, str]]:
    """(usage, help) of each, for help."""
    return [(c.usage, c.help) for c in commands]

"""Every key of the app, once: the bindings, the help screen and docs/keys.md are made from this table.

Ids are what a key map in the settings names. Ctrl+B, Ctrl+O and Ctrl+L are left to tmux and the shell, Ctrl+Z does what
it does there, and no function key is the only way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from textual.binding import ActiveBinding, Binding


@dataclass(frozen=True, slots=True)
class Key:
    """One entry. `keys` in Textual's notation, separated by commas."""

    id: str
    keys: str
    action: str
    """Empty for those that the message being written handles itself, while it has the keyboard."""
    label: str
    """In the footer."""
    help: str
    also: str = ""
    shown: bool = False
    priority: bool = False


KEYS: tuple[Key, ...] = (
    Key("send", "enter", "", "Send", "send the message; while an answer streams, queue it"),
    Key("newline", "ctrl+j,shift+enter,alt+enter,ctrl+enter", "", "Newline", "new line in the message",
        "\\ then Enter"),
    Key("stop", "escape", "stop", "Stop", "stop the answer and keep what is there", "Ctrl+C", shown=True,
        priority=True),
    Key("interrupt", "ctrl+c", "interrupt", "Stop", "copy what is selected, or stop, or clear; twice quits",
        priority=True),
    Key("next-drafter", "shift+tab", "next_drafter", "Drafter", "next drafter, from the next round on",
        "/drafter", shown=True, priority=True),
    Key("models", "f2", "command('model')", "Model",
        "models: here and to fetch, with size and fit; load, change, unload", "/model", shown=True),
    Key("drafters", "f3", "drafters", "Drafters", "list of drafters, with the reason when one cannot run", "/drafters"),
    Key("view", "f4", "view", "Colours", "source colours, plain Markdown, raw trace", "/view", shown=True),
    Key("panels", "f6", "panels", "Panels", "all panels, compact, none", "/panels", shown=True,
        priority=True),
    Key("charts", "f9", "command('chart')", "Charts", "a panel over the whole screen, as a chart",
        "/chart, Enter or click on a panel"),
    Key("race", "f7", "command('race')", "Race",
        "the message, or the last one, through several drafters side by side", "/race",
        shown=True, priority=True),  # a text area has an F7 of its own
    Key("sessions", "ctrl+s", "command('sessions')", "Chats", "find, open, rename, delete chats", "/sessions",
        shown=True, priority=True),
    Key("new", "ctrl+n", "command('new')", "New", "new chat", "/new", priority=True),
    Key("search", "ctrl+r", "search_history", "History", "search what was sent, as shells do; again for an older one",
        priority=True),
    Key("paste", "alt+v", "paste", "Paste", "paste what the desktop's clipboard holds: a picture, or text",
        "Ctrl+V, /image paste", priority=True),
    Key("expand", "tab", "", "Expand", "write out the long paste that the cursor touches"),
    Key("complete", "tab", "", "Complete", "take a command, one of its words, or a file after @", "↑ ↓ and Enter"),
    Key("undo", "ctrl+underscore,super+z", "", "Undo",
        "take back the last change of the message; Ctrl+Y does it again"),
    Key("history-back", "up", "", "History", "the queued message, then earlier ones, at the edge of the text"),
    Key("history-forward", "down", "", "History", "later ones, at the edge of the text"),
    Key("editor", "ctrl+g", "editor", "Editor", "write the message in $EDITOR"),
    Key("copy", "alt+y", "command('copy')", "Copy", "copy the last answer as Markdown", "/copy"),
    Key("block-up", "alt+up", "block(-1)", "Block", "a cursor over messages and the blocks of answers, one up"),
    Key("block-down", "alt+down", "block(1)", "Block", "the same, one down"),
    Key("thought", "ctrl+t", "thought", "Reasoning", "fold or unfold the reasoning of the last answer", priority=True),
    Key("page-up", "pageup", "page(-1)", "Up", "scroll up; new text no longer moves the view", priority=True),
    Key("page-down", "pagedown", "page(1)", "Down", "scroll down", priority=True),
    Key("live", "ctrl+end", "live", "Live", "back to the end of the conversation", priority=True),
    Key("retry", "f5", "command('retry')", "Retry", "try again after a failure", "/retry", shown=True),
    Key("help", "f1", "command('help')", "Help", "this list", "/help, ? on an empty message", shown=True),
    Key("settings", "f8", "command('settings')", "Settings", "all settings, kept in the file or for this session",
        "/settings, /set"),
    Key("palette", "ctrl+p", "palette", "Commands", "all commands", "/", shown=True, priority=True),
    Key("suspend", "ctrl+z", "app.suspend_process", "Suspend", "back to the shell; fg comes back here", priority=True),
    Key("quit", "ctrl+q", "quit", "Quit", "quit; the chat is saved", "/quit", shown=True, priority=True),
)  # fmt: skip

READING: tuple[Key, ...] = (
    Key("block-previous", "up,k", "block(-1)", "Up", "the block above"),
    Key("block-next", "down,j", "block(1)", "Down", "the block below"),
    Key("block-copy", "y", "block_copy", "Copy", "copy the block; of a code block the code"),
    Key("answer-copy", "Y", "block_copy(True)", "Copy all", "copy the whole answer"),
    Key("block-inspect", "i,enter", "block_do('inspect')", "Inspect", "its tokens, one by one",
        "/inspect"),
    Key("block-edit", "e", "block_do('edit')", "Edit", "write the message of this turn anew, as a branch"),
    Key("block-regenerate", "r", "block_do('again')", "Again", "answer this turn again, as a branch"),
    Key("block-branch", "b", "block_do('branch')", "Branch", "the next branch at this turn"),
    Key("block-fold", "space", "block_fold", "Fold", "fold or unfold the reasoning, or a long message"),
)  # fmt: skip
"""While the block cursor is on; Esc, and typing elsewhere, leave it."""

FOOTER = ("retry", "help", "models", "next-drafter", "view", "sessions", "palette", "quit", "stop", "panels", "race")
"""Order in the footer; a narrow screen shows the first ones only."""

EVERYWHERE = frozenset({"interrupt", "quit"})
"""Ids of the keys that work over every screen."""

SHARED = frozenset({"expand", "complete"})
"""May have one key: there is a list to choose from, or there is not."""

_NAMES = {
    "underscore": "_",
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "end": "End",
    "enter": "Enter",
}


def _bindings(keys: Iterable[Key]) -> list[Binding]:
    return [
        Binding(key.keys, key.action, key.label, show=key.shown, priority=key.priority, id=key.id, tooltip=key.help)
        for key in keys
        if key.action
    ]


def app_bindings() -> list[Binding]:
    """What works whatever screen is shown."""
    return _bindings(key for key in KEYS if key.id in EVERYWHERE)


def screen_bindings() -> list[Binding]:
    """For the screen of the conversation."""
    return _bindings(key for key in KEYS if key.id not in EVERYWHERE)


def leaving_bindings() -> list[Binding]:
    """For the screens that lie over it: the key that stops an answer leaves them."""
    key = next(key for key in KEYS if key.id == "stop")
    return [Binding(key.keys, "dismiss_none", key.label, show=False, priority=True, id=key.id)]


def reading_bindings() -> list[Binding]:
    """For the transcript, which has the keyboard while the block cursor is on."""
    return _bindings(READING)


def in_order(active: Mapping[str, ActiveBinding], top: bool) -> dict[str, ActiveBinding]:
    """What works, in the order of the footer; below another screen only what leads back or out."""
    order = {id: at for at, id in enumerate(FOOTER)}
    found = [(key, it) for key, it in active.items() if top or it.binding.id in (*EVERYWHERE, "stop")]
    return dict(sorted(found, key=lambda item: order.get(item[1].binding.id or "", len(order))))


def message_keys(mapped: Mapping[str, str]) -> dict[str, str]:
    """What each key does in the message being written, in the words of its own keys: `enter` is what sends, whatever
    key that is. `mapped`: keys that the user wants for an id. An own key that does something else now is empty."""
    own = {key.id: key.keys for key in KEYS if not key.action}
    found = {key: "" for keys in own.values() for key in keys.split(",")}
    for id, keys in own.items():
        for key in mapped.get(id, keys).split(","):
            found[key] = keys.split(",")[0]
    return found


def pretty(keys: str) -> str:
    """`shift+tab` → `Shift+Tab`; a letter alone is the letter that is typed."""
    found = [key for key in keys.split(",") if key]
    return ", ".join(key if len(key) == 1 else "+".join(map(_pretty_part, key.split("+"))) for key in found)


def _pretty_part(part: str) -> str:
    return _NAMES.get(part, part.upper() if part[0] == "f" and part[1:].isdigit() else part.capitalize())


def table() -> str:
    """docs/keys.md."""
    rows = ["# Keys", "", "Made from `tui/keys.py`. The id is what `[keys]` in the settings names, as in"]
    rows.append(
        '`view = "f12"`; several keys are separated by commas. A key that has something to do already is refused'
    )
    rows += ["with a sentence that says what.", "", *_rows(KEYS)]
    rows += [
        "",
        "While the block cursor is on (Alt+↑); Esc leaves it. Here a letter may be a key, too:",
        "",
        *_rows(READING),
    ]
    return "\n".join(rows) + "\n"


def _rows(keys: Iterable[Key]) -> list[str]:
    rows = [f"| {pretty(key.keys)} | {key.help} | {key.also} | `{key.id}` |".replace("\\", "\\\\") for key in keys]
    return ["| key | does | also | id |", "|---|---|---|---|", *rows]

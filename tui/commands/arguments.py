"""What the words after a command can become, for completion: (words, a note). One function a kind of word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.chat.images import EXTENSIONS
from engine.chat.terminal_safe import one_line
from engine.hub.catalog import catalog
from tui.commands.host import Choice, Host
from tui.conversation import export, project_files

MOST_CHATS = 30


def fixed(*words: str) -> Callable[[Host, str], Sequence[Choice]]:
    """A few words that are always the same."""
    return lambda host, begun: [(word, "") for word in words]


def drafters(host: Host, words: str) -> Sequence[Choice]:
    """Those that can run; the others are in the list of the command itself."""
    session = host.session
    current = session.drafter
    return [(d.name, "in use" if d.name == current else str(d.source)) for d in session.drafters if d.available]


def models(host: Host, words: str) -> Sequence[Choice]:
    """The loaded ones of before, then those of the catalog."""
    known = {card.id: card.title for card in catalog().cards}
    verbs = [("unload", "give its memory back"), ("stop", "end a download or a load")]
    return [
        *((name, "recent") for name in host.recent),
        *((n, t) for n, t in known.items() if n not in host.recent),
        *verbs,
    ]


def arms(host: Host, words: str) -> Sequence[Choice]:
    """Drafters for a race, after the ones that are written."""
    before, comma, _ = words.rpartition(",")
    taken = before.split(",")
    return [(f"{before}{comma}{d.name}", "") for d in host.session.drafters if d.available and d.name not in taken]


def chats(host: Host, words: str) -> Sequence[Choice]:
    """Beginnings of ids, newest first."""
    store = host.library.store
    rows = store.list(MOST_CHATS) if store is not None else []
    return [(row.id[:8], one_line(row.name)) for row in rows]


def themes(host: Host, words: str) -> Sequence[Choice]:
    return [*host.full.themes.items()] if host.full is not None else []


def panels(host: Host, words: str) -> Sequence[Choice]:
    return [(id, "") for id in host.full.panels] if host.full is not None else []


def pictures(host: Host, words: str) -> Sequence[Choice]:
    found = _paths(words, tuple(EXTENSIONS))
    verbs = [("paste", "the picture in the clipboard"), ("show", "those of this message, or of the last with some")]
    return found if words else [*verbs, ("clear", "none of those waiting"), *found]


def written(host: Host, words: str) -> Sequence[Choice]:
    """A name for an export: the title of the chat, in each form."""
    title = "-".join(one_line(host.session.chat.name).lower().split())[:40]
    stem = "".join(c for c in title if c.isalnum() or c in "-_") or "chat"
    begun = words.rpartition(".")[0] or words or stem
    return [(f"{begun}.{kind}", export.WORDS[kind]) for kind in export.FORMATS]


def read(host: Host, words: str) -> Sequence[Choice]:
    """Files that a chat can be read from."""
    return _paths(words, (".md", ".json", ".txt"))


def _paths(words: str, endings: tuple[str, ...]) -> list[Choice]:
    """Folders and files with one of these endings, as far as the path is written."""
    begun = words if project_files.is_path(words) else f"./{words}"
    names = [n for n in project_files.listed(begun) if n.endswith("/") or n.lower().endswith(endings)]
    return [(n if project_files.is_path(words) else n.removeprefix("./"), "") for n in names]

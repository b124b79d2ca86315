"""A chat as a file: Markdown, JSON, HTML or SVG. The last two keep the colours. Pure but for `write`."""

from __future__ import annotations

import html
import io
from pathlib import Path

from engine.errors import UsageError
from themes import Theme
from tui.conversation import turns_json
from tui.conversation.chat import Chat
from tui.conversation.stats import human
from tui.provenance import NAMES, runs

FORMATS = ("md", "json", "html", "svg")
WORDS = {"md": "Markdown", "json": "everything", "html": "a page in colour", "svg": "a picture in colour"}
WIDTH = 100


def write(chat: Chat, path: Path, theme: Theme, *, replace: bool = False) -> None:
    """Write by the file's ending; over a file that is there only with `replace`.

    Raises:
        UsageError: an ending that is none of ours, a file that is there, or a path that cannot be written.
    """
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise UsageError(f"{path.name} should end in {', '.join('.' + f for f in FORMATS)}.")
    text = {
        "md": markdown,
        "json": turns_json.document,
        "html": lambda c: as_html(c, theme),
        "svg": lambda c: svg(c, theme),
    }[kind](chat)
    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path.name} is there already; /export replace FILE writes over it.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def markdown(chat: Chat) -> str:
    """As it was typed and answered, without marks."""
    parts = [f"# {chat.name}"]
    if chat.system:
        parts.append("> " + chat.system.replace("\n", "\n> "))
    for turn in chat.turns:
        parts += [f"**You**\n\n{turn.user}", f"**{turn.answer.model or 'Model'}**\n\n{turn.answer.reply.rstrip()}"]
    return "\n\n".join(parts) + "\n"


def as_html(chat: Chat, theme: Theme) -> str:
    """One page without scripts or links to anywhere."""
    css = [
        f"body{{background:{theme.colors['background']};color:{theme.colors['foreground']};max-width:50rem;"
        "margin:2rem auto;padding:0 1rem;font:1rem/1.5 ui-monospace,monospace}",
        f".u{{color:{theme.colors['primary']};font-weight:bold}}",
        ".s{opacity:.7} div{white-space:pre-wrap;margin:1rem 0}",
        *(f".{name}{{color:{theme.source[name]}}}" for name in NAMES.values()),
        ".lookup{text-decoration:underline}",
    ]
    body = [f"<h1>{html.escape(chat.name)}</h1>"]
    for turn in chat.turns:
        a = turn.answer
        spans = "".join(
            f'<span class="{NAMES.get(code, "")}">{html.escape(a.text[start:end])}</span>'
            for start, end, code in runs(a.prov)
        )
        legend = " ".join(
            f'<span class="{source}">{source} {share}%</span>' for source, share in a.tally.legend.items()
        )
        body.append(f'<div><span class="u">You ›</span> {html.escape(turn.user)}</div><div>{spans}</div>')
        body.append(f'<div class="s">{legend} · {human(a.tally.tokens)} tokens · {html.escape(a.drafter)}</div>')
    head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(chat.name)}</title><style>{"".join(css)}</style>'
    return f"{head}<body>{''.join(body)}</body>\n"


def svg(chat: Chat, theme: Theme) -> str:
    """A picture of the text in its colours."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for turn in chat.turns:
        a = turn.answer
        console.print(Text.assemble(("You › ", f"bold {theme.colors['primary']}"), turn.user))
        text = Text()
        for start, end, code in runs(a.prov):
            name = NAMES.get(code, "target")
            style = theme.styles[name]
            text.append(a.text[start:end], f"{'' if style == 'none' else style} {theme.source[name]}".strip())
        console.print(text, "")
    return console.export_svg(title=chat.name)

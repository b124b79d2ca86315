"""Keys and commands, from the tables that define them."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from engine.config import Config
from tui.commands.registry import table
from tui.keys import KEYS, READING, pretty
from tui.screens.overlay import Overlay
from tui.settings.settings import rows as settings_rows
from tui.widgets.hanging_indent import Entry, Hanging

COLOURS = (
    ("■ draft", "$source-draft", "proposed by a learned drafter and accepted by the model"),
    ("▤ lookup", "$source-lookup underline", "copied from the text so far and accepted by the model"),
    ("□ target", "$source-target", "sampled by the model: after a rejection, after a full block, or alone"),
)


class HelpScreen(Overlay[None]):
    """One page."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > VerticalScroll {
        width: 96; max-width: 96%; height: 90%; padding: 1 2; background: $surface; border: round $primary;
    }
    """

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        """keys: those that the user mapped otherwise, by id."""
        super().__init__()
        self._keys = keys or {}

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(help_text(self._keys))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def on_click(self) -> None:
        self.dismiss()


def help_text(keys: Mapping[str, str]) -> Hanging:
    rows: list[Entry] = [_heading("Colours")]
    for name, style, text in COLOURS:
        rows.append(_row(name, 10, text, style))
    rows += [Entry(Content("")), _heading("Keys")]
    for key in KEYS:
        names = pretty(keys.get(key.id, key.keys)) or key.also.split(", ")[0]
        rows.append(_row(names, 22, key.help))
    rows += [Entry(Content("")), _heading("On the block cursor")]
    rows += [_row(pretty(keys.get(key.id, key.keys)), 22, key.help) for key in READING]
    rows += [Entry(Content("")), _heading("Commands")]
    rows += [_row(usage, 34, text) for usage, text in table()]
    rows += [Entry(Content("")), _heading("Settings", "  /set NAME VALUE, or F8")]
    rows += [_row(row.name, 22, row.help) for row in settings_rows(Config())]
    rows += [Entry(Content("")), Entry(Content("  A second slash sends a slash as text."))]
    return Hanging(rows)


def _heading(text: str, note: str = "") -> Entry:
    return Entry(Content.styled(text, "bold $primary"), Content.styled(note, "$faint"))


def _row(name: str, column: int, text: str, style: str = "bold") -> Entry:
    return Entry(Content.assemble("  ", (name, style), " "), Content(text), column + 3)

"""Keys and commands, from the tables that define them."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from engine.config import Config
from tui.commands import table
from tui.keys import KEYS, READING, pretty
from tui.settings import rows

COLOURS = (
    ("■ draft", "$source-draft", "proposed by a learned drafter and accepted by the model"),
    ("▤ lookup", "$source-lookup underline", "copied from the text so far and accepted by the model"),
    ("□ target", "$source-target", "sampled by the model: after a rejection, after a full block, or alone"),
)


class HelpScreen(ModalScreen[None]):
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


def help_text(keys: Mapping[str, str]) -> Content:
    parts: list[tuple[str, str] | str] = [("Colours\n", "bold $primary")]
    for name, style, text in COLOURS:
        parts += ["  ", (f"{name:<10}", style), f" {text}\n"]
    parts.append(("\nKeys\n", "bold $primary"))
    for key in KEYS:
        names = pretty(keys.get(key.id, key.keys)) or key.also.split(", ")[0]
        parts += ["  ", (f"{names:<22}", "bold"), f" {key.help}\n"]
    parts.append(("\nOn the block cursor\n", "bold $primary"))
    for key in READING:
        parts += ["  ", (f"{pretty(key.keys):<22}", "bold"), f" {key.help}\n"]
    parts.append(("\nCommands\n", "bold $primary"))
    for usage, text in table():
        parts += ["  ", (f"{usage:<34}", "bold"), f" {text}\n"]
    parts.append(("\nSettings", "bold $primary"))
    parts.append(("  /set NAME VALUE, or F8\n", "$faint"))
    for row in rows(Config()):
        parts += ["  ", (f"{row.name:<22}", "bold"), f" {row.help}\n"]
    parts.append("\n  A second slash sends a slash as text.")
    return Content.assemble(*parts)

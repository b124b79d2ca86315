"""What is shown until there is a model: progress, or what went wrong and what to do."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from engine.sanitize import clean, one_line
from tui.engine_port import Progress
from tui.stats import bar
from tui.widgets.header import short


def progress_text(progress: Progress, width: int) -> Content:
    """A sentence and a bar when the total is known."""
    text = Content.assemble(("Loading  ", "bold"), one_line(progress.text))
    if progress.total <= 0:
        return text
    share = min(progress.done / progress.total, 1.0)
    room = max(10, min(40, width - 32))
    cells = bar(share, room)
    amount = f" {share:.0%}"
    if progress.total > 1_000_000:
        amount += f"  {progress.done / 1e6:.0f} of {progress.total / 1e6:.0f} MB"
    return Content.assemble(text, "\n", (cells + "░" * (room - len(cells)), "$primary"), amount)


def failure_text(message: str) -> Content:
    return Content.assemble(("⚠ ", "$error"), clean(message), "\n", ("F5 tries again · Ctrl+Q quits", "$faint"))


def welcome_text(model: str, drafter: str) -> Content:
    """What a new user needs to know, and no more."""
    return Content.assemble(
        (short(model), "bold"), " is ready. Every token is coloured by where it came from:\n\n",
        ("  ■ draft ", "$source-draft"), "  drafted, and accepted by the model\n",
        "  ", ("▤ lookup", "$source-lookup underline"), "  copied from the text so far, and accepted\n",
        ("  □ target", "$source-target"), "  sampled by the model itself\n\n",
        f"Drafter now: {one_line(drafter)}. ", ("Shift+Tab", "bold"), " changes it, also while an answer streams; ",
        ("F4", "bold"), " changes the colours.",
    )  # fmt: skip


class Notice(Static):
    """A block of text in the place of the conversation."""

    DEFAULT_CSS = """
    Notice { height: auto; padding: 1 2; margin: 0 1 1 1; background: $surface; }
    """

    def __init__(self, text: Content | str = "", *, id: str | None = None, classes: str | None = None) -> None:
        self._text = Content(text) if isinstance(text, str) else text
        super().__init__(self._text, id=id, classes=classes)

    def say(self, text: Content) -> None:
        self._text = text
        self.update(text)

    def again(self) -> Notice:
        """The same anew: a widget that was taken off the screen cannot come back."""
        return Notice(self._text, id=self.id, classes=" ".join(self.classes) or None)

    def rows(self, width: int) -> int:
        """Height in a conversation of this width, the blank row below included."""
        return self._text.get_height({}, max(1, width - 6)) + 3

"""What the conversation says until there is a model: progress, or what went wrong and what to do."""

from __future__ import annotations

from textual.content import Content

from engine.chat.terminal_safe import clean, one_line
from tui.conversation.stats import bar
from tui.engine_api import Progress
from tui.widgets.header import short


def progress_text(progress: Progress, width: int) -> Content:
    """What is being done, and a bar when the total is known."""
    said = one_line(progress.text)
    text = Content(said[:1].upper() + said[1:])
    if progress.total <= 0:
        return text + " …"
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

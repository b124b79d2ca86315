"""One row for what goes on beside the conversation: a download, a load, a calibration. Gone when nothing does."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from engine.chat.terminal_safe import one_line
from tui.conversation.stats import bar
from tui.engine_api import Progress

ROOM = 24


def task_text(progress: Progress, hint: str, width: int) -> Content:
    """`downloading qwen3-4b ██████░░░░ 34 %  1400 of 4100 MB · how to stop it`."""
    parts: list[tuple[str, str]] = [(one_line(progress.text), "bold")]
    if progress.total > 0:
        share = min(progress.done / progress.total, 1.0)
        room = max(6, min(ROOM, width // 4))
        cells = bar(share, room)
        parts += [(" ", ""), (cells + "░" * (room - len(cells)), "$primary"), (f" {share:.0%}", "")]
        if progress.total > 1_000_000:
            parts.append((f"  {progress.done / 1e6:.0f} of {progress.total / 1e6:.0f} MB", ""))
    if hint:
        parts.append((f" · {hint}", "$faint"))
    return Content.assemble(*parts).truncate(max(1, width), ellipsis=True)


class TaskRow(Static):
    """Shown while there is a task."""

    DEFAULT_CSS = """
    TaskRow { display: none; height: 1; padding: 0 2; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.progress: Progress | None = None
        self._hint = ""

    def show(self, progress: Progress | None, hint: str = "") -> None:
        self.progress, self._hint = progress, hint
        self.display = progress is not None
        self.on_resize()

    def on_resize(self) -> None:
        if self.progress is not None:
            width = self.size.width or max(1, self.app.size.width - 4)
            self.update(task_text(self.progress, self._hint, width), layout=False)

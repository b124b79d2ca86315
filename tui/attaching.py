"""Which pictures go with the message being written, found while it is written. A mixin of the app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual import work
from textual.timer import Timer
from textual.worker import get_current_worker

from engine.vision import EXTENSIONS
from tui.pictures import Attachment, look, mentioned
from tui.widgets.attachments import Attachments
from tui.widgets.composer import Composer

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller

    Base = App[int]
else:
    Base = object

SETTLE = 0.12
"""A message is looked through when its writer pauses."""
KEPT = 64

Version = tuple[Path, int, int, int]
"""A file as it was (time, size), and the engine that it was looked at for."""


class Attaching(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        composer: Composer

    _picture_timer: Timer | None = None
    _pictures_read: dict[Version, Attachment] | None = None

    def on_composer_edited(self, event: Composer.Edited) -> None:
        self.pictures_changed()

    def pictures_changed(self) -> None:
        """The message, what waits to go with it, or the model is another one."""
        if self._picture_timer is not None:
            self._picture_timer.stop()
        self._picture_timer = self.set_timer(SETTLE, self._message_rests)

    def _message_rests(self) -> None:
        text, waiting = self.composer.message, list(self.controller.album.waiting)
        low = text.lower()
        if waiting or any(ending in low for ending in EXTENSIONS):
            self._read_pictures(text, waiting)
        else:
            self.workers.cancel_group(self, "pictures")
            self._show_attachments([])

    @work(thread=True, group="pictures", exclusive=True, exit_on_error=False)
    def _read_pictures(self, text: str, waiting: list[Path]) -> None:
        """Reads files and, the first time, imports what prepares pictures: seconds, beside the screen."""
        worker = get_current_worker()
        found: list[Attachment] = []
        for path in [*waiting, *mentioned(text)]:
            if worker.is_cancelled:
                return
            found.append(self._attachment(path))
        if not worker.is_cancelled:
            self.call_from_thread(self._show_attachments, found)

    def _attachment(self, path: Path) -> Attachment:
        engine = self.controller.engine
        known = self._pictures_read = self._pictures_read or {}
        try:
            stat = path.stat()
            version = (path, stat.st_mtime_ns, stat.st_size, id(engine))
        except OSError:
            return look(path, engine)
        if version not in known:
            known[version] = look(path, engine)
            while len(known) > KEPT:
                del known[next(iter(known))]
        return known[version]

    def _show_attachments(self, found: list[Attachment]) -> None:
        for row in self.query(Attachments):
            row.show(found)

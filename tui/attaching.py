"""Which pictures go with the message being written, found while it is written. A mixin of the app."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import work
from textual.timer import Timer
from textual.worker import get_current_worker

from engine.chat.images import EXTENSIONS
from tui.pictures import Attachment, look, looking, mentioned
from tui.thumbs import Thumbs
from tui.widgets.attachments import Attachments
from tui.widgets.composer import Composer
from tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from textual.app import App

    from tui.chat import Turn
    from tui.controller import Controller
    from tui.engine_port import EngineLike
    from tui.prefs import Wishes

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
        transcript: Transcript
        wishes: Wishes
        no_color: bool

        def say(self, text: str, severity: Any = "information") -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pictures_read: dict[Version, Attachment] = {}
        self._thumbs = Thumbs()
        self._pictured: list[Turn] = []
        """Turns that want small pictures, the last one first."""
        self._drawing_small = False

    _picture_timer: Timer | None = None

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
        """Beside the screen; each line comes as soon as something is known of its picture."""
        worker, engine = get_current_worker(), self.controller.engine
        found: list[Attachment] = []
        for path in [*waiting, *mentioned(text)]:
            for i, attachment in enumerate(self._known_or_looked_at(path, engine)):
                if worker.is_cancelled:
                    return
                found[len(found) - bool(i) :] = [attachment]
                self.call_from_thread(self._show_attachments, list(found))

    def _known_or_looked_at(self, path: Path, engine: EngineLike | None) -> Iterator[Attachment]:
        """Once for each version of a file."""
        known, version = self._pictures_read, _version(path, engine)
        if version in known:
            yield known[version]
            return
        attachment = None
        for attachment in looking(path, engine):
            yield attachment
        if attachment is not None:
            known[version] = attachment
        while len(known) > KEPT:
            del known[next(iter(known))]

    def attach(self, path: Path) -> str | None:
        """Send a picture with the next message: at once, for that may be sent at once, too. What is wrong with it is
        said as soon as it is known, and then it does not go."""
        if not path.is_file():
            return look(path, None).text
        self.controller.album.waiting.append(path)
        self._check_attached(path)
        return None

    @work(thread=True, group="attach", exit_on_error=False)
    def _check_attached(self, path: Path) -> None:
        for found in self._known_or_looked_at(path, self.controller.engine):
            if found.trouble:
                self.call_from_thread(self._refuse_attached, path, found)

    def _refuse_attached(self, path: Path, found: Attachment) -> None:
        waiting = self.controller.album.waiting
        if path in waiting:
            waiting.remove(path)
            self.say(found.text, "warning")
            self.pictures_changed()

    def picture_trouble(self, text: str) -> str:
        """Why a message cannot be sent as it is, as far as that is known; empty when nothing is."""
        engine = self.controller.engine
        found = (self._pictures_read.get(_version(path, engine)) for path in mentioned(text))
        return next((a.text for a in found if a is not None and a.trouble), "")

    def name_pictures(self, turn: Turn) -> None:
        """A turn that is about to be shown says what is known of its pictures."""
        engine = self.controller.engine
        found = [self._pictures_read.get(_version(path, engine)) for path in mentioned(turn.user)]
        if all(a is not None and not a.trouble for a in found):
            turn.images = tuple(a.text for a in found if a is not None)

    def on_transcript_pictured(self, event: Transcript.Pictured) -> None:
        if self.no_color or self.current_theme.ansi or not self.wishes.thumbnails:
            return
        self._pictured = [*(turn for turn in self._pictured if turn is not event.turn), event.turn][-KEPT:]
        if not self._drawing_small:
            self._drawing_small = True
            self._read_small()

    @work(thread=True, group="thumbs", exit_on_error=False)
    def _read_small(self) -> None:
        """One file after the other, whatever is paged through meanwhile."""
        while True:
            while self._pictured:
                turn = self._pictured.pop()
                if any(small := self._thumbs.read(turn.user, turn.images)):
                    self.call_from_thread(self.transcript.show_thumbs, turn, small)
            self._drawing_small = False
            if not self._pictured:  # else one came between the two lines above
                return
            self._drawing_small = True

    def _show_attachments(self, found: list[Attachment]) -> None:
        for row in self.query(Attachments):
            row.show(found)


def _version(path: Path, engine: EngineLike | None) -> Version:
    try:
        stat = path.stat()
    except OSError:
        return path, 0, 0, id(engine)
    return path, stat.st_mtime_ns, stat.st_size, id(engine)

"""The message being written, with what is offered for it and the pictures that go with it.

Posts a message that is ready to be sent, its files written out; who answers it is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.worker import get_current_worker

from engine import paths
from engine.chat.images import EXTENSIONS
from engine.errors import UsageError
from tui.commands import registry
from tui.commands.completion import Candidate, Project, candidates, wants_files
from tui.commands.host import Host
from tui.conversation import mentions
from tui.conversation.chat import Turn
from tui.conversation.images import Attachment, look, looking, mentioned
from tui.conversation.input_history import History
from tui.engine_api import EngineLike
from tui.terminal import clipboard
from tui.widgets.composer.attachments import Attachments
from tui.widgets.composer.suggestions import Suggestions
from tui.widgets.composer.text_area import ComposerTextArea

SETTLE = 0.12
"""A message is looked through when its writer pauses."""
KEPT = 64

Version = tuple[Path, int, int, int]
"""A file as it was (time, size), and the engine that it was looked at for."""


class ComposerArea(Vertical):
    """Suggestions, attachments, and the text itself."""

    DEFAULT_CSS = """
    ComposerArea { height: auto; }
    """

    class Submitted(Message):
        """The user sent `text`: as a command (name, words), in the place of the message of `edited`, or as it is."""

        def __init__(self, text: str, command: tuple[str, str] | None = None, edited: Turn | None = None) -> None:
            super().__init__()
            self.text, self.command, self.edited = text, command, edited

    class Refused(Message):
        """Something cannot be sent or pasted, for a reason."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    def __init__(self, host: Host, history: History, keys: Mapping[str, str], id: str | None = None) -> None:
        super().__init__(id=id)
        self.text_area = ComposerTextArea(history, id="composer")
        self.text_area.map_keys(keys)
        self.text_area.choose = self._choose_by
        self.text_area.take_back = self.unqueue_text
        self.suggestions = Suggestions(id="suggest")
        self.editing: Turn | None = None
        """The turn whose message is being written anew."""
        self._attachments = Attachments(id="attachments")
        self._host = host
        self._session = host.session
        self._project: Project | None = None
        self._looking = False
        self._pictures_read: dict[Version, Attachment] = {}
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self.suggestions
        yield self._attachments
        yield self.text_area

    # Offering ---------------------------------------------------------------------------------------------------------

    @property
    def project(self) -> Project:
        """The files around; made when the first @ is written."""
        if self._project is None:
            self._project = Project()
        return self._project

    def on_composer_text_area_edited(self, event: ComposerTextArea.Edited) -> None:
        self.offer()
        self.pictures_changed()

    def offer(self) -> None:
        """Show what the text at the cursor could become."""
        before = self.text_area.before
        if before is None:
            self.suggestions.offer(())
            return
        if wants_files(before) and self.project.stale and not self._looking:
            self._looking = True
            self._look()
        self.suggestions.offer(candidates(self._host, before, self.project))

    @work(thread=True, group="files", exit_on_error=False)
    def _look(self) -> None:
        self.project.look()
        self._looking = False
        self.app.call_from_thread(self.offer)

    def _choose_by(self, key: str) -> bool:
        """↑ ↓ Tab Enter while the list is open; whether it took the key. Enter is for what is marked only."""
        suggestions = self.suggestions
        if not suggestions.open or (key == "enter" and suggestions.chosen is None):
            return False
        if key in ("up", "down"):
            suggestions.move(-1 if key == "up" else 1)
        else:
            self._choose(suggestions.chosen or suggestions.items[0], send=key == "enter")
        return True

    def _choose(self, item: Candidate, send: bool) -> None:
        self.suggestions.at = None
        self.text_area.complete(item.start, item.text)
        if send and item.sends:
            self.text_area.action_send()

    def close(self) -> bool:
        """Leave the search, or put the list away until the text changes; whether there was one."""
        if self.text_area.search is not None:
            self.text_area.end_search(keep=False)
            return True
        was = self.suggestions.open
        self.suggestions.offer(())
        return was

    def clear(self) -> bool:
        """Leave the search, or put away what is written, into the history; whether there was anything."""
        if self.text_area.search is not None:
            self.text_area.end_search(keep=False)
        elif self.text_area.text:
            self.text_area.clear_sent()
        else:
            return False
        return True

    def begin(self, text: str) -> None:
        """Another text in the place of this one, as if it had just been typed."""
        self.text_area.focus()
        self.text_area.load_text("")
        self.text_area.complete(0, text)

    # Editing a message that was sent ----------------------------------------------------------------------------------

    def edit(self, turn: Turn) -> None:
        self.editing = turn
        self.text_area.load_text(turn.user)
        self.text_area.move_cursor(self.text_area.document.end)
        self.text_area.focus()

    def leave_edit(self) -> bool:
        """Forget an edit that was begun; whether there was one."""
        editing, self.editing = self.editing, None
        if editing is not None:
            self.text_area.clear_sent()
        return editing is not None

    # Sending ----------------------------------------------------------------------------------------------------------

    def on_composer_text_area_submitted(self, event: ComposerTextArea.Submitted) -> None:
        text, command = event.text, registry.parse(event.text)
        if command is None:
            try:
                if trouble := self._picture_trouble(text):
                    raise UsageError(trouble)
                text = mentions.expand(text)
            except UsageError as error:  # the message stays where it was written
                self.post_message(self.Refused(str(error)))
                return
        self.text_area.clear_sent()
        if command is not None:
            self.post_message(self.Submitted(text, command))
            return
        edited, self.editing = self.editing, None
        self.post_message(self.Submitted(text.removeprefix("/") if text.startswith("//") else text, None, edited))

    # The message that waits -------------------------------------------------------------------------------------------

    def show_queue(self) -> None:
        self.suggestions.wait(self._session.queued)

    def unqueue_text(self) -> str | None:
        """↑ on an empty message: what waits comes back to be changed, and waits no longer."""
        text, self._session.queued = self._session.queued, None
        self.show_queue()
        return text

    def give_back(self) -> None:
        """The answer was stopped: what waited for its end is not sent over the user's head."""
        text = self.unqueue_text()
        if text:
            written = self.text_area.message
            self.text_area.write(f"{text}\n\n{written}" if written.strip() else text)

    # Pasting ----------------------------------------------------------------------------------------------------------

    def on_composer_text_area_paste_wanted(self) -> None:
        self.paste()

    @work(thread=True, group="paste", exit_on_error=False)
    def paste(self) -> None:
        """Ctrl+V, Alt+V: a picture goes with the message, text into it."""
        try:
            path = clipboard.keep_picture(paths.data() / "pasted")
        except UsageError as error:
            text = clipboard.text() or self.app.clipboard
            if text:
                self.app.call_from_thread(self.text_area.paste, text)
            else:
                self.post_message(self.Refused(str(error)))
        else:
            self.app.call_from_thread(self._attach_pasted, path)

    def _attach_pasted(self, path: Path) -> None:
        trouble = self.attach(path)
        self.pictures_changed()
        if trouble:
            self.post_message(self.Refused(trouble))

    # Pictures ---------------------------------------------------------------------------------------------------------

    def pictures_changed(self) -> None:
        """The message, what waits to go with it, or the model is another one."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(SETTLE, self._message_rests)

    def _message_rests(self) -> None:
        text, waiting = self.text_area.message, list(self._session.album.waiting)
        low = text.lower()
        if waiting or any(ending in low for ending in EXTENSIONS):
            self._read_pictures(text, waiting)
        else:
            self.workers.cancel_group(self, "pictures")
            self._attachments.show([])

    @work(thread=True, group="pictures", exclusive=True, exit_on_error=False)
    def _read_pictures(self, text: str, waiting: list[Path]) -> None:
        """Beside the screen; each line comes as soon as something is known of its picture."""
        worker, engine = get_current_worker(), self._session.engine
        found: list[Attachment] = []
        for path in [*waiting, *mentioned(text)]:
            for i, attachment in enumerate(self._known_or_looked_at(path, engine)):
                if worker.is_cancelled:
                    return
                found[len(found) - bool(i) :] = [attachment]
                self.app.call_from_thread(self._attachments.show, list(found))

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
        self._session.album.waiting.append(path)
        self._check_attached(path)
        return None

    @work(thread=True, group="attach", exit_on_error=False)
    def _check_attached(self, path: Path) -> None:
        for found in self._known_or_looked_at(path, self._session.engine):
            if found.trouble:
                self.app.call_from_thread(self._refuse_attached, path, found)

    def _refuse_attached(self, path: Path, found: Attachment) -> None:
        waiting = self._session.album.waiting
        if path in waiting:
            waiting.remove(path)
            self.post_message(self.Refused(found.text))
            self.pictures_changed()

    def _picture_trouble(self, text: str) -> str:
        """Why a message cannot be sent as it is, as far as that is known; empty when nothing is."""
        engine = self._session.engine
        found = (self._pictures_read.get(_version(path, engine)) for path in mentioned(text))
        return next((a.text for a in found if a is not None and a.trouble), "")

    def name_pictures(self, turn: Turn) -> None:
        """A turn that is about to be shown says what is known of its pictures."""
        engine = self._session.engine
        found = [self._pictures_read.get(_version(path, engine)) for path in mentioned(turn.user)]
        if all(a is not None and not a.trouble for a in found):
            turn.images = tuple(a.text for a in found if a is not None)


def _version(path: Path, engine: EngineLike | None) -> Version:
    try:
        stat = path.stat()
    except OSError:
        return path, 0, 0, id(engine)
    return path, stat.st_mtime_ns, stat.st_size, id(engine)

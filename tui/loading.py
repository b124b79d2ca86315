"""Loading a model, changing it for another and letting go of it, while the app and its chat stay. A mixin of the app.

The old model answers while another one is fetched, and stays until the new one is ready where both have room; otherwise
it goes first, and comes back when the new one cannot be loaded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import work
from textual.content import Content
from textual.message import Message

from engine.chat.terminal_safe import clean, one_line
from engine.config import Config
from engine.errors import Cancelled, DsparkError
from tui.engine_port import EngineLike, Progress, give_back, settle_memory
from tui.model_port import Models, ModelsLike, held
from tui.screens.models import ModelsScreen, gigabytes
from tui.stats import Tally
from tui.widgets.loading import failure_text, progress_text, welcome_text
from tui.widgets.task_row import TaskRow

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller
    from tui.options import Options
    from tui.prefs import Prefs
    from tui.widgets.transcript import Transcript

    Base = App[int]
else:
    Base = object

log = logging.getLogger("dspark.tui")

AGAIN = 0.1
"""Seconds between looks at whether an answer is over."""
RECENT = 6


@dataclass(eq=False, slots=True)
class Job:
    """One load under way."""

    config: Config
    instead: EngineLike | None = None
    """The model that answers meanwhile."""
    stop: threading.Event = field(default_factory=threading.Event)
    back: Config | None = None
    """What to load again when this fails: the old model had to go first."""

    @property
    def name(self) -> str:
        return self.config.model or "the embedded model"


class Loading(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        options: Options
        transcript: Transcript
        prefs: Prefs

        def say(self, text: str, severity: Any = "information") -> None: ...
        def show_header(self) -> None: ...
        def show_figures(self) -> None: ...
        def remember(self, **choices: str) -> None: ...
        def pictures_changed(self) -> None: ...
        async def send_queued(self) -> None: ...

    job: Job | None = None
    load_error = ""
    _loaded_once = False
    unloaded = ""
    """The model that the user let go of; the next message loads it again."""

    class Progressed(Message):
        """Loading went on."""

        def __init__(self, job: Job, progress: Progress) -> None:
            super().__init__()
            self.job, self.progress = job, progress

    class Loaded(Message):
        def __init__(self, job: Job, engine: EngineLike) -> None:
            super().__init__()
            self.job, self.engine = job, engine

    class LoadFailed(Message):
        def __init__(self, job: Job, error: Exception) -> None:
            super().__init__()
            self.job, self.error = job, error
            self.text = str(error) or type(error).__name__

    @property
    def models(self) -> ModelsLike:
        return self.options.models or Models(self.controller.config)

    @property
    def model_name(self) -> str:
        """For the header."""
        engine = self.controller.engine
        if engine is not None:
            return engine.spec.name
        return f"{self.unloaded} (unloaded)" if self.unloaded else self.controller.config.model or "loading…"

    @property
    def recent(self) -> list[str]:
        """Models loaded before, newest first."""
        return [name for name in self.prefs.recent.split("\n") if name]

    # Beginning --------------------------------------------------------------------------------------------------------

    def start_loading(self) -> None:
        """Load what the settings name; also again after a failure."""
        if self.job is None:
            self._start(Job(self.controller.config))

    def switch_model(self, name: str) -> str | None:
        """Load another model in the place of this one. A sentence says why not."""
        engine = self.controller.engine
        if self.job is not None:
            return f"{self.job.name} is being loaded; /model stop stops that."
        if engine is not None and engine.spec.name == name:
            return f"{name} is loaded already."
        self._start(Job(replace(self.controller.config, model=name, drafter="auto"), engine))
        return None

    def stop_loading(self) -> str | None:
        if self.job is None:
            return "Nothing is being loaded."
        self.job.stop.set()
        return None

    def _start(self, job: Job) -> None:
        self.job, self.load_error, self.unloaded = job, "", ""
        self.show_progress(Progress(f"loading {job.name}"))
        self.show_header()
        self._load(job)

    @work(thread=True, group="load", exit_on_error=False)
    def _load(self, job: Job) -> None:
        def stop() -> bool:
            return self._exit or job.stop.is_set()

        def tell(progress: Progress) -> None:
            self.post_message(self.Progressed(job, progress))

        try:
            if job.instead is not None and not self.models.prepare(job.config, held(job.instead), tell, stop):
                self.call_from_thread(self._give_way, job)
            loader = None if self._loaded_once and self.options.models is not None else self.options.loader
            engine = loader(tell) if loader is not None else self.models.load(job.config, tell, stop)
        except Exception as error:  # the edge of loading: the screen says it as a sentence
            log.warning("loading failed: %s", error, exc_info=None if isinstance(error, DsparkError) else error)
            self.post_message(self.LoadFailed(job, error))
        else:
            self.post_message(self.Loaded(job, engine))

    async def _give_way(self, job: Job) -> None:
        """Both have no room: the old one goes, once it has said what it was saying."""
        while self.controller.busy:
            if job.stop.is_set():
                raise Cancelled("The change of the model was stopped; the old one is still there.")
            await asyncio.sleep(AGAIN)
        job.back, job.instead = self.controller.config, None
        await self._let_go()

    async def _let_go(self) -> None:
        engine, self.controller.engine = self.controller.engine, None
        self.show_header()
        self.show_figures()
        if engine is not None:
            await asyncio.to_thread(engine.close)
            del engine
            await asyncio.to_thread(give_back)

    # Going on ---------------------------------------------------------------------------------------------------------

    def show_progress(self, progress: Progress) -> None:
        """In the empty conversation, or in a row of its own."""
        text = progress_text(progress, self.transcript.size.width)
        if self.controller.engine is None and self.transcript.retell("notice", text):
            self.query_one(TaskRow).show(None)
        else:
            self.query_one(TaskRow).show(progress, "/model stop stops it")

    def on_loading_progressed(self, event: Progressed) -> None:
        if event.job is self.job:
            self.show_progress(event.progress)

    async def on_loading_load_failed(self, event: LoadFailed) -> None:
        job = event.job
        if job is not self.job:
            return
        self.job = None
        self.query_one(TaskRow).show(None)
        if job.back is not None:
            self.say(f"{event.text} The model from before is loaded again.", "warning")
            self._start(Job(job.back))
        elif self.controller.engine is not None:
            calm = isinstance(event.error, Cancelled)
            text = f"{event.text} {self.controller.engine.spec.name} is still there."
            if calm:
                self.say(text)
            else:
                self.transcript.tell(Content(clean(f"⚠ {text}")))
        else:
            self.load_error = event.text
            self.transcript.tell(failure_text(event.text), "notice")
        self.refresh_bindings()

    async def on_loading_loaded(self, event: Loaded) -> None:
        job = event.job
        if job is self.job and self.controller.busy:  # the old one says what it was saying to its end
            self.show_progress(Progress(f"{job.name} is ready, and waits for this answer to end"))
            self.set_timer(AGAIN, partial(self.post_message, self.Loaded(job, event.engine)))
            return
        if job is not self.job:
            await asyncio.to_thread(event.engine.close)
            return
        self.job = job.instead = None
        self.query_one(TaskRow).show(None)
        first = self.controller.engine is None and job.back is None
        await self._let_go()
        await self._take_up(job, event.engine, first)

    async def _take_up(self, job: Job, engine: EngineLike, first: bool) -> None:
        controller = self.controller
        controller.engine, self._loaded_once = engine, True
        controller.config = replace(controller.config, model=job.config.model, drafter=job.config.drafter)
        controller.start = replace(controller.start, model=job.config.model, drafter=job.config.drafter)
        controller.session = Tally()
        name = engine.spec.name
        if not self.is_headless:
            settle_memory()
        self.transcript.decode, self.transcript.model = getattr(engine.tokenizer, "decode", None), name
        self.remember(recent="\n".join([name, *(n for n in self.recent if n != name)][:RECENT]))
        if controller.chat.turns or not self.transcript.retell("notice", welcome_text(name, engine.drafter)):
            self.transcript.dismiss("notice")
            if not first:
                self.say(f"{name} is ready; the chat goes on with it.")
        self.show_header()
        self.show_figures()
        self.refresh_bindings()
        self.pictures_changed()
        await self.send_queued()

    # Choosing ---------------------------------------------------------------------------------------------------------

    async def model_command(self, words: str) -> str | None:
        match words:
            case "":
                self.action_models()
                return None
            case "unload":
                return await self.unload_model()
            case "stop":
                return self.stop_loading()
            case _:
                return self.switch_model(words)

    @work
    async def action_models(self) -> None:
        """The list of models."""
        screen = ModelsScreen(
            self.models,
            # Not by a variable for the engine: whoever holds it keeps an unloaded model in memory.
            self.controller.engine.spec.name if self.controller.engine is not None else "",
            self.recent,
            self._facts,
            lambda: self.query_one(TaskRow).progress if self.job is not None else None,
            self.stop_loading,
        )
        chosen = await self.push_screen_wait(screen)
        said = await self.unload_model() if screen.unload else self.switch_model(chosen) if chosen else None
        if said:
            self.say(said)

    def _facts(self) -> Content | None:
        """What the loaded model is."""
        engine = self.controller.engine
        if engine is None:
            return None
        per_token = int(getattr(engine.spec, "kv_bytes_per_token", 0))
        rows = [Content.assemble(("loaded", "bold"), f" · memory {gigabytes(held(engine))} · context "
                                 f"{engine.spec.context:,} tokens, {per_token / 1000:.0f} kB each")]  # fmt: skip
        for drafter in engine.drafters:
            mark, style = ("✓", "") if drafter.available else ("–", "$faint")
            reason = f"  {one_line(drafter.reason)}" if drafter.reason else ""
            rows.append(Content.assemble((f"{mark} {one_line(drafter.name)}", style), (reason, "$faint")))
        return Content("\n").join(rows)

    # Letting go -------------------------------------------------------------------------------------------------------

    async def unload_model(self) -> str | None:
        """Give the model's memory back; the chat stays, and the next message loads it again."""
        engine = self.controller.engine
        if engine is None:
            return "No model is loaded."
        if self.controller.busy:
            return "An answer is under way; Esc stops it."
        name, size = engine.spec.name, held(engine)
        del engine
        self.unloaded = name
        await self._let_go()
        text = f"{name} is unloaded ({size / 2**20:.0f} MB). The next message loads it again."
        self.transcript.retell("notice", Content(text))
        return text

"""Which model answers: loading one, changing it for another, letting go of it, while the chat stays. No widgets.

The old model answers while another one is fetched, and stays until the new one is ready where both have room; otherwise
it goes first, and comes back when the new one cannot be loaded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.config import Config
from engine.errors import Cancelled, DsparkError
from tui.conversation.session import ChatSession
from tui.conversation.stats import Tally
from tui.engine_api import EngineLike, Loader, Models, ModelsLike, Progress, held, release_model_memory

log = logging.getLogger("dspark.tui")

AGAIN = 0.1
"""Seconds between looks at whether an answer is over."""


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


@dataclass(frozen=True, slots=True)
class Progressed:
    """Loading went on."""

    job: Job
    progress: Progress


@dataclass(frozen=True, slots=True)
class Loaded:
    job: Job
    engine: EngineLike


@dataclass(frozen=True, slots=True)
class LoadFailed:
    job: Job
    error: Exception

    @property
    def text(self) -> str:
        return str(self.error) or type(self.error).__name__


News = Progressed | Loaded | LoadFailed


class ModelManager:
    """Holds the one job there can be. `work` runs on a thread of the caller's; all else on the caller's own."""

    def __init__(self, session: ChatSession, models: ModelsLike | None = None, loader: Loader | None = None) -> None:
        """models: another place that models come from. loader: another way to the first engine."""
        self.session = session
        self._models = models
        self._loader = loader
        self._loaded_once = False
        self.job: Job | None = None
        self.error = ""
        """Why there is no model, after a load that failed."""
        self.unloaded = ""
        """The model that the user let go of; the next message loads it again."""

    @property
    def models(self) -> ModelsLike:
        return self._models or Models(self.session.config)

    @property
    def name(self) -> str:
        """For the header."""
        engine = self.session.engine
        if engine is not None:
            return engine.spec.name
        return f"{self.unloaded} (unloaded)" if self.unloaded else self.session.config.model or "loading…"

    # Beginning --------------------------------------------------------------------------------------------------------

    def begin(self) -> Job | None:
        """A job for what the settings name, unless there is one; also again after a failure."""
        return self.take(Job(self.session.config)) if self.job is None else None

    def switch(self, name: str) -> Job | str:
        """A job for another model in the place of this one; or why not."""
        engine = self.session.engine
        if self.job is not None:
            return f"{self.job.name} is being loaded; /model stop stops that."
        if engine is not None and engine.spec.name == name:
            return f"{name} is loaded already."
        return self.take(Job(replace(self.session.config, model=name, drafter="auto"), engine))

    def take(self, job: Job) -> Job:
        self.job, self.error, self.unloaded = job, "", ""
        return job

    def stop(self) -> str | None:
        if self.job is None:
            return "Nothing is being loaded."
        self.job.stop.set()
        return None

    def work(
        self, job: Job, post: Callable[[News], object], leaving: Callable[[], bool], give_way: Callable[[Job], object]
    ) -> None:
        """Carry a job out, on a worker thread. `give_way` is called, and waited for, where the old model has to go."""

        def stop() -> bool:
            return leaving() or job.stop.is_set()

        def tell(progress: Progress) -> None:
            post(Progressed(job, progress))

        try:
            if job.instead is not None and not self.models.prepare(job.config, held(job.instead), tell, stop):
                give_way(job)
            loader = None if self._loaded_once and self._models is not None else self._loader
            engine = loader(tell) if loader is not None else self.models.load(job.config, tell, stop)
        except Exception as error:  # the edge of loading: the screen says it as a sentence
            log.warning("loading failed: %s", error, exc_info=None if isinstance(error, DsparkError) else error)
            post(LoadFailed(job, error))
        else:
            post(Loaded(job, engine))

    # Ending -----------------------------------------------------------------------------------------------------------

    async def give_way(self, job: Job, changed: Callable[[], object]) -> None:
        """Both have no room: the old one goes, once it has said what it was saying."""
        while self.session.busy:
            if job.stop.is_set():
                raise Cancelled("The change of the model was stopped; the old one is still there.")
            await asyncio.sleep(AGAIN)
        job.back, job.instead = self.session.config, None
        await self.let_go(changed)

    async def let_go(self, changed: Callable[[], object]) -> None:
        """Close the loaded model; `changed` is called as soon as it is out of use."""
        engine, self.session.engine = self.session.engine, None
        changed()
        if engine is not None:
            await asyncio.to_thread(engine.close)
            del engine
            await asyncio.to_thread(release_model_memory)

    def take_up(self, job: Job, engine: EngineLike) -> None:
        """The chat goes on with this engine."""
        session, model, drafter = self.session, job.config.model, job.config.drafter
        session.engine, self._loaded_once = engine, True
        session.config = replace(session.config, model=model, drafter=drafter)
        session.start = replace(session.start, model=model, drafter=drafter)
        session.totals = Tally()

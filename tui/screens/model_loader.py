"""Loads and changes models for the chat screen: the model manager works on a thread, and what it says is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual.content import Content
from textual.screen import Screen

from engine.chat.terminal_safe import clean, one_line
from engine.errors import Cancelled, human_bytes
from tui.conversation.model_manager import AGAIN, Job, Loaded, LoadFailed, ModelManager, News, Progressed
from tui.engine_api import EngineLike, Progress, held, settle_memory
from tui.screens.models import ModelsScreen
from tui.settings.preferences import Preferences
from tui.widgets.task_row import TaskRow
from tui.widgets.transcript.placeholder import failure_text, progress_text, welcome_text
from tui.widgets.transcript.view import Transcript

RECENT = 6


class ModelLoader:
    """Draws in the conversation and in the row of tasks. `say` is for what a corner may forget, `changed` is called
    when another model, or none, answers, and `ready` when a new one waits for questions."""

    def __init__(
        self,
        screen: Screen[Any],
        manager: ModelManager,
        preferences: Preferences,
        say: Callable[..., object],
        changed: Callable[[], object],
        ready: Callable[[], Awaitable[object]],
    ) -> None:
        self._screen, self.manager, self._preferences = screen, manager, preferences
        self._say, self._changed, self._ready = say, changed, ready
        self._session = manager.session

    @property
    def _transcript(self) -> Transcript:
        return self._screen.query_one(Transcript)

    @property
    def _row(self) -> TaskRow:
        return self._screen.query_one(TaskRow)

    @property
    def recent(self) -> list[str]:
        """Models loaded before, newest first."""
        return [name for name in self._preferences.recent.split("\n") if name]

    # Beginning --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load what the settings name; also again after a failure."""
        job = self.manager.begin()
        if job is not None:
            self._work(job)

    def switch(self, name: str) -> str | None:
        """Load another model in the place of this one. A sentence says why not."""
        job = self.manager.switch(name)
        if isinstance(job, str):
            return job
        self._work(job)
        return None

    def _work(self, job: Job) -> None:
        self._show_progress(Progress(f"loading {job.name}"))
        self._changed()
        app = self._screen.app
        work = partial(
            self.manager.work,
            job,
            post=self._post,
            leaving=lambda: app._exit,  # pyright: ignore[reportPrivateUsage] (nothing public says that an app ends)
            give_way=lambda job: app.call_from_thread(self.manager.give_way, job, self._changed),
        )
        self._screen.run_worker(work, thread=True, group="load", exit_on_error=False)

    def _post(self, news: News) -> None:
        """From the thread that loads."""
        self._screen.call_later(self.hear, news)

    # Going on ---------------------------------------------------------------------------------------------------------

    async def hear(self, news: News) -> None:
        """Say what came of a job, or how far it is; one that was given up no longer counts."""
        if news.job is not self.manager.job:
            if isinstance(news, Loaded):
                await asyncio.to_thread(news.engine.close)
            return
        match news:
            case Progressed():
                self._show_progress(news.progress)
            case LoadFailed():
                self._failed(news)
            case Loaded():
                await self._loaded(news)

    def _show_progress(self, progress: Progress) -> None:
        """In the empty conversation, or in a row of its own."""
        text = progress_text(progress, self._transcript.size.width)
        if self._session.engine is None and self._transcript.update_notice("notice", text):
            self._row.show(None)
        else:
            self._row.show(progress, "/model stop stops it")

    def _failed(self, news: LoadFailed) -> None:
        manager, engine = self.manager, self._session.engine
        manager.job = None
        self._row.show(None)
        if news.job.back is not None:
            self._say(f"{news.text} The model from before is loaded again.", "warning")
            self._work(manager.take(Job(news.job.back)))
        elif engine is None:
            manager.error = news.text
            self._transcript.add_notice(failure_text(news.text), "notice")
        elif isinstance(news.error, Cancelled):
            self._say(f"{news.text} {engine.spec.name} is still there.")
        else:
            self._transcript.add_notice(Content(clean(f"⚠ {news.text} {engine.spec.name} is still there.")))
        self._screen.refresh_bindings()

    async def _loaded(self, news: Loaded) -> None:
        job = news.job
        if self._session.busy:  # the old one says what it was saying to its end
            self._show_progress(Progress(f"{job.name} is ready, and waits for this answer to end"))
            self._screen.set_timer(AGAIN, partial(self._post, news))
            return
        self.manager.job = job.instead = None
        self._row.show(None)
        first = self._session.engine is None and job.back is None
        await self.manager.let_go(self._changed)
        self.manager.take_up(job, news.engine)
        self._welcome(news.engine, first)
        self._changed()
        self._screen.refresh_bindings()
        await self._ready()

    def _welcome(self, engine: EngineLike, first: bool) -> None:
        transcript, name = self._transcript, engine.spec.name
        if not self._screen.app.is_headless:
            settle_memory()
        transcript.decode, transcript.model = getattr(engine.tokenizer, "decode", None), name
        self._preferences.remember(recent="\n".join([name, *(n for n in self.recent if n != name)][:RECENT]))
        if self._session.chat.turns or not transcript.update_notice("notice", welcome_text(name, engine.drafter)):
            transcript.remove_notice("notice")
            if not first:
                self._say(f"{name} is ready; the chat goes on with it.")

    # Choosing ---------------------------------------------------------------------------------------------------------

    async def command(self, words: str) -> str | None:
        """`/model`: the list, another model, none."""
        match words:
            case "":
                self._screen.run_worker(self._choose())
                return None
            case "unload":
                return await self.unload()
            case "stop":
                return self.manager.stop()
            case _:
                return self.switch(words)

    async def _choose(self) -> None:
        """From the list of models."""
        screen = ModelsScreen(
            self.manager.models,
            # Not by a variable for the engine: whoever holds it keeps an unloaded model in memory.
            self._session.engine.spec.name if self._session.engine is not None else "",
            self.recent,
            self._facts,
            lambda: self._row.progress if self.manager.job is not None else None,
            self.manager.stop,
        )
        chosen = await self._screen.app.push_screen_wait(screen)
        said = await self.unload() if screen.unload else self.switch(chosen) if chosen else None
        if said:
            self._say(said)

    def _facts(self) -> Content | None:
        """What the loaded model is."""
        engine = self._session.engine
        if engine is None:
            return None
        per_token = int(getattr(engine.spec, "kv_bytes_per_token", 0))
        rows = [Content.assemble(("loaded", "bold"), f" · memory {human_bytes(held(engine))} · context "
                                 f"{engine.spec.context:,} tokens, {per_token / 1000:.0f} kB each")]  # fmt: skip
        for drafter in engine.drafters:
            mark, style = ("✓", "") if drafter.available else ("–", "$faint")
            reason = f"  {one_line(drafter.reason)}" if drafter.reason else ""
            rows.append(Content.assemble((f"{mark} {one_line(drafter.name)}", style), (reason, "$faint")))
        return Content("\n").join(rows)

    async def unload(self) -> str | None:
        """Give the model's memory back; the chat stays, and the next message loads it again."""
        engine = self._session.engine
        if engine is None:
            return "No model is loaded."
        if self._session.busy:
            return "An answer is under way; Esc stops it."
        name, size = engine.spec.name, held(engine)
        del engine
        self.manager.unloaded = name
        await self.manager.let_go(self._changed)
        text = f"{name} is unloaded ({human_bytes(size)}). The next message loads it again."
        self._transcript.update_notice("notice", Content(text))
        return text

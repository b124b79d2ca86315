"""`/model` in the plain mode: the list, another model, none. Progress goes line by line; Ctrl+C stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.chat.terminal_safe import one_line
from engine.config import Config
from engine.diagnostics.model_preview import Choice
from engine.errors import DsparkError
from tui.conversation.session import ChatSession
from tui.engine_api import EngineLike, Models, ModelsLike, Progress, held, release_model_memory


def command(session: ChatSession, words: str, say: Callable[[str], None], models: ModelsLike | None = None) -> str:
    """Carry it out; the sentence that comes of it."""
    models = models or Models(session.config)
    if words == "unload":
        if session.engine is None:
            return "No model is loaded."
        name = session.engine.spec.name
        _let_go(session)
        return f"{name} is unloaded; /model {name} loads it again."
    if words == "stop":
        return "Nothing is being loaded; Ctrl+C stops what is."
    if words:
        return _switch(session, words, say, models)
    current = session.engine.spec.name if session.engine is not None else ""
    return "\n".join(_line(choice, current) for choice in models.choices() if not choice.trouble)


def _line(choice: Choice, current: str) -> str:
    state = f"{choice.size / 1e9:.2f} GB" if choice.installed else "interrupted" if choice.missing else "to fetch"
    drafters = ", ".join(choice.drafters)
    return f"{'›' if choice.name == current else ' '} {one_line(choice.name):<32} {state:<12} {drafters}"


def _switch(session: ChatSession, name: str, say: Callable[[str], None], models: ModelsLike) -> str:
    old = session.engine
    if old is not None and old.spec.name == name:
        return f"{name} is loaded already."
    before, config = session.config, replace(session.config, model=name, drafter="auto")
    told: list[str] = []

    def tell(progress: Progress) -> None:
        if progress.text not in told:
            told.append(progress.text)
            say(f"{progress.text} …")

    try:
        beside = models.prepare(config, held(old) if old is not None else 0, tell, lambda: False)
        if not beside:
            old = None
            _let_go(session)
        engine = models.load(config, tell, lambda: False)
    except (DsparkError, KeyboardInterrupt) as error:
        return f"{str(error) or 'That was stopped.'} {_back(session, before, tell, models)}"
    del old
    _let_go(session)
    session.engine, session.config = engine, config
    return f"{engine.spec.name} is ready; drafter {engine.drafter}. The chat goes on with it."


def _back(session: ChatSession, config: Config, tell: Callable[[Progress], None], models: ModelsLike) -> str:
    """The old model, after a failure; loaded again where it had to go."""
    if session.engine is None:
        try:
            session.engine = models.load(config, tell, lambda: False)
        except DsparkError as error:
            return f"The model from before could not be loaded again: {error}"
    return f"{session.engine.spec.name} is still there."


def _let_go(session: ChatSession) -> None:
    engine: EngineLike | None = session.engine
    session.engine = None
    if engine is not None:
        engine.close()
        del engine
        release_model_memory()

"""`/model` in the plain mode: the list, another model, none. Progress goes line by line; Ctrl+C stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.chat.terminal_safe import one_line
from engine.config import Config
from engine.diagnostics.model_preview import Choice
from engine.errors import DsparkError
from tui.controller import Controller
from tui.engine_port import EngineLike, Progress, give_back
from tui.model_port import Models, ModelsLike, held


def command(controller: Controller, words: str, say: Callable[[str], None], models: ModelsLike | None = None) -> str:
    """Carry it out; the sentence that comes of it."""
    models = models or Models(controller.config)
    if words == "unload":
        if controller.engine is None:
            return "No model is loaded."
        name = controller.engine.spec.name
        _let_go(controller)
        return f"{name} is unloaded; /model {name} loads it again."
    if words == "stop":
        return "Nothing is being loaded; Ctrl+C stops what is."
    if words:
        return _switch(controller, words, say, models)
    current = controller.engine.spec.name if controller.engine is not None else ""
    return "\n".join(_line(choice, current) for choice in models.choices() if not choice.trouble)


def _line(choice: Choice, current: str) -> str:
    state = f"{choice.size / 1e9:.2f} GB" if choice.installed else "interrupted" if choice.missing else "to fetch"
    drafters = ", ".join(choice.drafters)
    return f"{'›' if choice.name == current else ' '} {one_line(choice.name):<32} {state:<12} {drafters}"


def _switch(controller: Controller, name: str, say: Callable[[str], None], models: ModelsLike) -> str:
    old = controller.engine
    if old is not None and old.spec.name == name:
        return f"{name} is loaded already."
    before, config = controller.config, replace(controller.config, model=name, drafter="auto")
    told: list[str] = []

    def tell(progress: Progress) -> None:
        if progress.text not in told:
            told.append(progress.text)
            say(f"{progress.text} …")

    try:
        beside = models.prepare(config, held(old) if old is not None else 0, tell, lambda: False)
        if not beside:
            old = None
            _let_go(controller)
        engine = models.load(config, tell, lambda: False)
    except (DsparkError, KeyboardInterrupt) as error:
        return f"{str(error) or 'That was stopped.'} {_back(controller, before, tell, models)}"
    del old
    _let_go(controller)
    controller.engine, controller.config = engine, config
    return f"{engine.spec.name} is ready; drafter {engine.drafter}. The chat goes on with it."


def _back(controller: Controller, config: Config, tell: Callable[[Progress], None], models: ModelsLike) -> str:
    """The old model, after a failure; loaded again where it had to go."""
    if controller.engine is None:
        try:
            controller.engine = models.load(config, tell, lambda: False)
        except DsparkError as error:
            return f"The model from before could not be loaded again: {error}"
    return f"{controller.engine.spec.name} is still there."


def _let_go(controller: Controller) -> None:
    engine: EngineLike | None = controller.engine
    controller.engine = None
    if engine is not None:
        engine.close()
        del engine
        give_back()

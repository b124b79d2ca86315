"""What the command line hands to the app and to the plain mode."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import Config
from tui.engine_api import Loader, ModelsLike


@dataclass(frozen=True, slots=True)
class Options:
    """Settings, and what only a start of the app knows."""

    config: Config
    theme: str | None = None
    marks: bool = False
    """In the plain mode, show sources by brackets instead of colour."""
    resume: str | None = None
    """Id of a chat, or the beginning of one."""
    continue_last: bool = False
    prompt: str = ""
    """Sent as soon as the model is loaded."""
    loader: Loader | None = None
    """Another way to the first engine; None loads `config.model`."""
    models: ModelsLike | None = None
    """Another place that models come from."""

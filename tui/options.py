"""What the command line decides for the app. Imports nothing but the engine's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import Config


@dataclass(frozen=True, slots=True)
class Options:
    """How the app starts."""

    config: Config = field(default_factory=Config)
    theme: str | None = None
    """None: the settings file's, or the default."""
    plain: bool = False
    """Line by line instead of full screen."""
    resume: str | None = None
    """Go on with this chat."""
    continue_last: bool = False
    """Go on with the last chat."""

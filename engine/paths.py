"""Where things are kept, in one place: settings, chats, models, measurements, logs. Creates nothing.

`DSPARK_HOME` puts everything under one folder; otherwise each system's own conventions hold.
"""

from __future__ import annotations

import os
from pathlib import Path

ENV_HOME = "DSPARK_HOME"


def _under(kind: str) -> Path:
    home = os.environ.get(ENV_HOME)
    if home:
        return Path(home).expanduser() / kind
    from platformdirs import PlatformDirs  # not needed for --help and --version

    return Path(getattr(PlatformDirs("dspark-chat", appauthor=False), f"user_{kind}_dir"))


def config() -> Path:
    """Settings, user themes, user model cards."""
    return _under("config")


def data() -> Path:
    """Chats."""
    return _under("data")


def state() -> Path:
    """Input history and logs."""
    return _under("state")


def cache() -> Path:
    """What can be made again: measurements, the embedded model."""
    return _under("cache")


def models() -> Path:
    """Models that this program fetched itself; those from the Hugging Face hub stay in the hub's own cache."""
    return cache() / "models"


def hub_cache() -> Path:
    """The Hugging Face hub's cache; HF_HUB_CACHE and HF_HOME are honoured, read at each call."""
    explicit = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if explicit:
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def lm_studio() -> tuple[Path, ...]:
    """Folders in which LM Studio keeps models as owner/name."""
    return (Path("~/.lmstudio/models").expanduser(), Path("~/.cache/lm-studio/models").expanduser())


def settings_file() -> Path:
    return config() / "config.toml"


def all_paths() -> dict[str, Path]:
    """What `dspark-chat paths` prints."""
    return {
        "settings": settings_file(),
        "themes": config() / "themes",
        "cards": config() / "cards",
        "chats": data(),
        "history and logs": state(),
        "cache": cache(),
        "models": models(),
        "hub cache": hub_cache(),
    }

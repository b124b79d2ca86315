"""Where things are kept, in one place: settings, chats, models, measurements, logs; and how a file is replaced whole.
Creates no folder.

`DSPARK_HOME` puts everything under one folder; otherwise each system's own conventions hold.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Generator
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


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False, mode: int = 0o600) -> Generator[Path]:
    """A name under which to write what shall replace `path`, whole or not at all.

    `mode`: of a file that is new, less the umask; by default nobody else reads it. One that exists keeps its own.
    `durable`: on the disk before it is there under its name, so that a power cut leaves the old file or the new one.
    Parts that a killed process left behind go.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        pid = left.suffixes[-2].removeprefix(".")
        if pid.isdigit() and not _alive(int(pid)):
            left.unlink(missing_ok=True)
    # The ending is the part's own: nobody who lists a folder's weights or records takes it for one of them.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else mode
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode))
        yield part
        if durable:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, text: str, *, durable: bool = False, mode: int = 0o600) -> None:
    """Replace a text file whole or not at all; see `replacing`."""
    with replacing(path, durable=durable, mode=mode) as part:
        part.write_text(text, encoding="utf-8", newline="")


def keep_private(path: Path) -> None:
    """Make a file that only its owner reads, or make one that is there so. Where that cannot be, whoever opens it says
    why."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


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

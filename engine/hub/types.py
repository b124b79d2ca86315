"""What finding and fetching speak about. Imports nothing heavy, so that a front end can use it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.hub.catalog import Card

Stage = Literal["find", "size", "download", "verify", "load", "note", "warmup", "ready"]
_WORDS: dict[Stage, str] = {
    "size": "asking how large {} is",
    "download": "downloading {}",
    "verify": "checking {}",
    "load": "loading {}",
    "note": "{}",
    "warmup": "measuring {}",
}
Place = Literal["path", "embedded", "hub", "lm-studio", "folder", "none"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of getting a model ready. `done` and `total` are bytes while downloading; total 0 means unknown."""

    stage: Stage
    done: int = 0
    total: int = 0
    text: str = ""
    """For a person: which model, which file; of a note, all that there is to say."""

    @property
    def words(self) -> str:
        """What is being done; empty where nothing is that takes time."""
        return _WORDS.get(self.stage, "").format(self.text)


Listener = Callable[[Progress], None]
Stop = Callable[[], bool]
"""Asked about five times a second; True cancels."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a model is, or where it would come from."""

    name: str
    """Canonical: the card's id, the repository, or the path."""
    place: Place
    path: Path | None = None
    """Folder of the checkpoint, or a .gguf file; None when it must be fetched."""
    repo: str = ""
    """Hub repository, empty for plain folders and the embedded model."""
    card: Card | None = None
    missing: tuple[str, ...] = ()
    """Files that an interrupted download has left out."""
    size: int = 0
    """Bytes of weights on disk."""
    kind: Literal["model", "drafter", "other"] = "model"

    @property
    def installed(self) -> bool:
        return self.path is not None and not self.missing

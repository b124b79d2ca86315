"""One file of the disk tier: reading it, finding all of them, sweeping what is not whole."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.kv_cache.base import LayerSnapshot
from engine.prefix_cache.serialization import Opened, unpack

log = logging.getLogger("dspark.prefix")
SUFFIX = ".prefix"
FORMAT = 2
"""Of the files. Those of format 1 may hold states of other prompts than they name, and are never read."""


@dataclass(eq=False, slots=True)
class Segment:
    """One file, on disk or about to be; what blocks and checkpoints read from."""

    path: Path
    folder: str
    """Digest of the state key."""
    parent: str
    start: int
    end: int
    nbytes: int
    used: float
    label: str = ""
    state: str = "alive"
    """pending, alive or dead."""

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def alive(self) -> bool:
        return self.state == "alive"

    def open(self) -> Opened:
        try:
            return Opened.at(self.path)
        except (OSError, ValueError):
            self.state = "dead"
            raise

    def block(self, index: int) -> list[mx.array]:
        file = self.open()
        with contextlib.suppress(OSError):
            os.utime(self.path)
        return [file.read(n) for n in file.names() if n.startswith(f"block{index}.")]

    def checkpoint(self) -> tuple[tuple[int, LayerSnapshot], ...]:
        file = self.open()
        arrays = {n: file.read(n) for n in file.names() if n.startswith("point.")}
        return tuple(
            (x["layer"], LayerSnapshot(x["kind"], x["length"], unpack(x["data"], arrays), x["nbytes"], x["from"]))
            for x in file.meta["checkpoint"]
        )

    def contexts(self) -> dict[str, Any]:
        """Drafter contexts at `end`; one that cannot be read is left out, the drafter then starts without."""
        out: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            file = self.open()
            for name, packed in file.meta["contexts"].items():
                with contextlib.suppress(ValueError, TypeError, KeyError, ImportError):
                    arrays = {n: file.read(n) for n in file.names() if n.startswith(f"context.{name}.")}
                    out[name] = unpack(packed, arrays)
        return out

    def discard(self) -> None:
        self.state = "dead"
        with contextlib.suppress(OSError):
            self.path.unlink()


def digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def sweep(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote."""
    for part in folder.glob(f"*/*{SUFFIX}.*.tmp"):
        pid = part.name.rsplit(".", 2)[-2]
        if not (pid.isdigit() and int(pid) != os.getpid() and _running(int(pid))):
            part.unlink(missing_ok=True)


def scan(folder: Path) -> Iterator[Segment]:
    """Every whole file of this format or a newer one; damaged ones are removed, and older ones, which is said."""
    outdated = 0
    for path in sorted(folder.glob(f"*/*{SUFFIX}")):
        try:
            file = Opened.at(path)
            meta = file.meta
            if meta["format"] < FORMAT:
                outdated += 1
                path.unlink(missing_ok=True)
                continue
            used = path.stat().st_mtime
            yield Segment(
                path, path.parent.name, meta["parent"], meta["start"], meta["end"], file.nbytes, used, meta["label"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
    if outdated:
        log.warning("%d files of an older version of the prefix cache were removed from %s", outdated, folder)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

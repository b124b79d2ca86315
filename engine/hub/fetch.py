"""Fetches a repository from the Hugging Face hub through a child process, with progress, a space check and cancel."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import paths
from engine.errors import Cancelled, DsparkError, FetchError, Gated, NoSpace, Offline, UnknownModel, human_bytes
from engine.hub.types import Listener, Progress, Stop

_MARGIN = 500_000_000
"""Left free beside a download: a full disk breaks more than the download."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What fetching a repository would take."""

    repo: str
    wanted: Mapping[str, int]
    """Bytes of each file that is not on disk yet."""
    files: Mapping[str, int]
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def bytes(self) -> int:
        """Still to be fetched."""
        return sum(self.wanted.values())

    @property
    def weights(self) -> int:
        return sum(size for name, size in self.files.items() if name.endswith(".safetensors"))


def plan_repo(repo: str, stop: Stop | None = None) -> Plan:
    """Ask the hub how large a repository is, and for its config; fetches nothing else.

    Raises:
        Offline, Gated, UnknownModel, FetchError, Cancelled.
    """
    _check_online(repo)
    with _child(repo, "--plan") as (_, lines):
        for event in _events(repo, lines, stop or (lambda: False)):
            if event["event"] == "sizes":
                return Plan(repo, event["wanted"], event["files"], _object(event["config"]))
    raise FetchError(f"The hub said nothing about {repo}.")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def fetch_repo(
    repo: str, on_progress: Listener | None = None, stop: Stop | None = None, *, files: Sequence[str] = ()
) -> Path:
    """Download what is missing of a repository, or only of these files of it, into the hub cache and return its
    snapshot folder.

    Files that are finished stay when it is cancelled; the half-done one starts again next time.

    Raises:
        Offline, NoSpace, Gated, UnknownModel, FetchError, Cancelled.
    """
    _check_online(repo)
    began = time.time()
    with contextlib.ExitStack() as stack:
        child, lines = stack.enter_context(_child(repo, *files))
        try:
            tell: Listener = on_progress or (lambda _progress: None)
            return _follow(child, lines, repo, tell, stop or (lambda: False), files)
        finally:
            stack.close()
            if child.returncode:
                _sweep(repo, began)


def _check_online(repo: str) -> None:
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise Offline(f"{repo} is not on this machine, and HF_HUB_OFFLINE forbids fetching it.")


Lines = queue.Queue[str | None]


@contextlib.contextmanager
def _child(repo: str, *options: str) -> Generator[tuple[subprocess.Popen[str], Lines]]:
    """The process and what it writes, line by line, None at its end."""
    child = subprocess.Popen(
        # -P: a script has its folder on the path, where types.py is not the library's.
        [sys.executable, "-P", str(Path(__file__).with_name("download_process.py")), repo, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"},
    )
    lines: Lines = queue.Queue()

    def read() -> None:
        for line in child.stdout or ():
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True, name="hub-fetch")
    reader.start()
    try:
        yield child, lines
    finally:
        _end(child, reader)


def _events(repo: str, lines: Lines, stop: Stop) -> Iterator[dict[str, Any]]:
    """What the child says; its errors are raised."""
    while True:
        if stop():
            raise Cancelled(f"The download of {repo} was stopped.")
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            continue
        if line is None:
            raise FetchError(f"The download of {repo} ended without a word.")
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # a library that writes to stdout is not ours to judge
        if event.get("event") == "error":
            raise _failure(repo, str(event.get("kind")), str(event.get("text", "")))
        yield event


def _follow(
    child: subprocess.Popen[str], lines: Lines, repo: str, tell: Listener, stop: Stop, files: Sequence[str] = ()
) -> Path:
    tell(Progress("size", text=repo))
    total = 0
    wanted: dict[str, int] = {}
    try:
        for event in _events(repo, lines, stop):
            match event["event"]:
                case "sizes":
                    total, wanted = int(event["bytes"]), event["wanted"]
                    if absent := [name for name in files if name not in event["files"]]:
                        raise UnknownModel(f"{repo} has no file {', '.join(absent)}: look at its files on the hub.")
                    _check_space(repo, total)
                    tell(Progress("download", 0, total, repo))
                    _go(child)
                case "bytes":
                    tell(Progress("download", min(int(event["done"]), total), total, repo))
                case _:
                    tell(Progress("download", total, total, repo))
                    return Path(event["path"])
    except Cancelled as error:
        raise Cancelled(f"{error} {kept(repo, wanted)}") from None
    raise FetchError(f"The download of {repo} ended without a word.")


def kept(repo: str, wanted: Mapping[str, int]) -> str:
    """A sentence on what a stopped download leaves on disk."""
    folder = paths.hub_cache() / f"models--{repo.replace('/', '--')}" / "snapshots"
    done = [name for name in wanted if any(path.exists() for path in folder.glob(f"*/{name}"))]
    if not done:
        return "No file was finished; the next time starts from the beginning."
    size = sum(wanted[name] for name in done)
    return (
        f"The {len(done)} of {len(wanted)} finished files stay on disk ({human_bytes(size)}); a half-done one "
        "starts again next time."
    )


def _check_space(repo: str, needed: int) -> None:
    folder = paths.hub_cache()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed and free < needed + _MARGIN:
        raise NoSpace(
            f"{repo} needs {human_bytes(needed)} on the disk of {folder}, and {human_bytes(free)} are free. "
            "Free some space, or set HF_HOME to another disk."
        )


def _go(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        if child.stdin:
            child.stdin.write("go\n")
            child.stdin.flush()


def _failure(repo: str, kind: str, text: str) -> DsparkError:
    match kind:
        case "offline":
            return Offline(
                f"Not all of {repo} is on this machine, and the hub cannot be reached. Connect and try again."
            )
        case "gated":
            return Gated(f"{repo} wants its licence accepted on its page of the hub; then run `hf auth login`.")
        case "unknown":
            return UnknownModel(f"The hub has no {repo}, or it is private: check the name, or run `hf auth login`.")
        case "space":
            return NoSpace(f"The disk filled up while {repo} was fetched. Free some space and start again.")
        case _:
            return FetchError(f"{repo} could not be fetched: {text}")


def _end(child: subprocess.Popen[str], reader: threading.Thread) -> None:
    """Closing its stdin ends it; it is waited for, so that nothing is left running."""
    if child.stdin:
        with contextlib.suppress(OSError):
            child.stdin.close()
    try:
        child.wait(timeout=2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    reader.join(timeout=2)
    if child.stdout and not reader.is_alive():
        child.stdout.close()


def _sweep(repo: str, since: float) -> None:
    """Remove half-done files of this download: the hub library never resumes them."""
    for left in (paths.hub_cache() / f"models--{repo.replace('/', '--')}" / "blobs").glob("*.incomplete"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime >= since - 1:
                left.unlink()

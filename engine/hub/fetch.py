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
from pathlib import Path
from typing import Any

from engine import paths
from engine.errors import Cancelled, DsparkError, FetchError, Gated, NoSpace, Offline, UnknownModel
from engine.hub.base import Listener, Progress, Stop

_MARGIN = 500_000_000
"""Left free beside a download: a full disk breaks more than the download."""


def fetch_repo(repo: str, on_progress: Listener | None = None, stop: Stop | None = None) -> Path:
    """Download what is missing of a repository into the hub cache and return its snapshot folder.

    Files that are finished stay when it is cancelled; the half-done one starts again next time.

    Raises:
        Offline, NoSpace, Gated, UnknownModel, FetchError, Cancelled.
    """
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise Offline(f"{repo} is not on this machine, and HF_HUB_OFFLINE forbids fetching it.")
    tell: Listener = on_progress or (lambda _progress: None)
    stop = stop or (lambda: False)
    began = time.time()
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("child.py")), repo],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"},
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in child.stdout or ():
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True, name="hub-fetch")
    reader.start()
    try:
        return _follow(child, lines, repo, tell, stop)
    finally:
        _end(child, reader)
        if child.returncode:
            _sweep(repo, began)


def _follow(
    child: subprocess.Popen[str], lines: queue.Queue[str | None], repo: str, tell: Listener, stop: Stop
) -> Path:
    tell(Progress("size", text=repo))
    total = 0
    while True:
        if stop():
            raise Cancelled(f"The download of {repo} was stopped; finished files stay on disk.")
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            continue
        if line is None:
            raise FetchError(f"The download of {repo} ended without a word (exit code {child.wait()}).")
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # a library that writes to stdout is not ours to judge
        match event.get("event"):
            case "sizes":
                total = int(event["bytes"])
                _check_space(repo, total)
                tell(Progress("download", 0, total, repo))
                _go(child)
            case "bytes":
                tell(Progress("download", min(int(event["done"]), total), total, repo))
            case "done":
                tell(Progress("download", total, total, repo))
                return Path(event["path"])
            case _:
                raise _failure(repo, str(event.get("kind")), str(event.get("text", "")))


def _check_space(repo: str, needed: int) -> None:
    folder = paths.hub_cache()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed and free < needed + _MARGIN:
        raise NoSpace(
            f"{repo} needs {needed / 1e9:.1f} GB on the disk of {folder}, and {free / 1e9:.1f} GB are free. "
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
                f"{repo} is not complete on this machine, and the hub cannot be reached. Connect and try again."
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
